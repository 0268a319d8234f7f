package redistest

import "testing"

// SaveSnapshot writes an RDB file of the data as it is now. Nothing else does so
// unless a save setting asks for it. A server WithAOF cannot: it loads its AOF.
func (s *Server) SaveSnapshot(t testing.TB) {
	t.Helper()
	if s.setting("appendonly") == "yes" {
		t.Fatal("redistest: a server with an AOF does not load snapshots")
	}
	s.mustCall(t, "SAVE")
}

// RestartFromSnapshot kills the server and starts it again with the data of the
// last snapshot. It may be repeated; without a snapshot the server is empty.
func (s *Server) RestartFromSnapshot() {
	s.t.Helper()
	s.Kill()
	s.Restart()
}
