package redistest

import "strconv"

// Resharding is a slot on its way from one master to another. Until Finish, the
// owner answers for keys that it still has and sends clients on, by ASK, for
// others; a command on keys of both sides is told to try again.
type Resharding struct {
	c        *Cluster
	slot     int
	from, to *Server
}

// Reshard moves a slot with its keys to the master to while the cluster serves,
// and returns when every living node knows.
func (c *Cluster) Reshard(slot int, to *Server) {
	c.t.Helper()
	c.BeginReshard(slot, to).Finish()
}

// BeginReshard opens the way for a slot and moves no key yet. The slot must have
// a living owner other than to.
func (c *Cluster) BeginReshard(slot int, to *Server) *Resharding {
	c.t.Helper()
	from := c.ownerOf(slot)
	if from == nil || from == to {
		c.t.Fatalf("redistest: slot %d has no living owner to move it from", slot)
	}
	r := &Resharding{c, slot, from, to}
	r.setSlot(to, "IMPORTING", from.clusterID(c.t))
	r.setSlot(from, "MIGRATING", to.clusterID(c.t))
	return r
}

// Move moves up to n keys and returns how many it moved.
func (r *Resharding) Move(n int) int {
	r.c.t.Helper()
	keys := r.from.mustCall(r.c.t, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(r.slot), strconv.Itoa(n)).strings()
	if len(keys) == 0 {
		return 0
	}
	args := []string{"MIGRATE", "127.0.0.1", strconv.Itoa(r.to.port), "", "0", "10000"}
	if password := r.to.password(); password != "" {
		args = append(args, "AUTH", password)
	}
	r.from.mustCall(r.c.t, append(append(args, "KEYS"), keys...)...)
	return len(keys)
}

// Finish moves the keys that are left and makes to the owner.
func (r *Resharding) Finish() {
	r.c.t.Helper()
	for r.Move(100) > 0 {
	}
	for _, master := range append([]*Server{r.to, r.from}, without(r.c.Masters(), r.to, r.from)...) {
		r.setSlot(master, "NODE", r.to.clusterID(r.c.t))
	}
	await(r.c.t, "the new owner to be known", r.c.Nodes(), r.known)
}

func (r *Resharding) known() bool {
	id := r.to.self().id
	for _, node := range alive(r.c.Nodes()) {
		if !node.view().members[id].owns(r.slot) {
			return false
		}
	}
	return true
}

func (r *Resharding) setSlot(node *Server, state, id string) {
	r.c.t.Helper()
	node.mustCall(r.c.t, "CLUSTER", "SETSLOT", strconv.Itoa(r.slot), state, id)
}
