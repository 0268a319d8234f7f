package memstore

import (
	"sort"

	"github.com/tidwall/btree"

	"github.com/dueq/dueq/internal/rules"
)

// queue is the rules over entries in memory.
type queue struct {
	*rules.Queue
	storage *storage
	was     float64 // its head before the call under way
}

func newQueue(name string) *queue {
	s := &storage{entries: map[string]*rules.Entry{}}
	for p := range s.sets {
		s.sets[p] = btree.NewBTreeGOptions(item.before, btree.Options{NoLocks: true})
	}
	return &queue{Queue: rules.New(name, s), storage: s}
}

// storage is a rules.Storage: a map, and a tree for each place.
type storage struct {
	entries map[string]*rules.Entry
	sets    [rules.Places]*btree.BTreeG[item]
}

// item is an entry in a place, or a position in it.
type item struct {
	rules.Position
	entry *rules.Entry
}

func (a item) before(b item) bool { return a.Position.Before(b.Position) }

func (s *storage) Find(member string) *rules.Entry { return s.entries[member] }

func (s *storage) New(member string) *rules.Entry {
	e := &rules.Entry{Member: member}
	s.entries[member] = e
	return e
}

func (s *storage) Drop(e *rules.Entry) { delete(s.entries, e.Member) }

func (s *storage) Body(e *rules.Entry) []byte { return e.Body }

func (s *storage) Put(p rules.Place, e *rules.Entry) { s.sets[p].Set(item{e.At(p), e}) }

func (s *storage) Remove(p rules.Place, e *rules.Entry) { s.sets[p].Delete(item{e.At(p), e}) }

func (s *storage) Min(p rules.Place) *rules.Entry {
	it, _ := s.sets[p].Min()
	return it.entry
}

func (s *storage) Ascend(p rules.Place, after *rules.Position, yield func(*rules.Entry) bool) {
	if after == nil {
		s.sets[p].Scan(func(it item) bool { return yield(it.entry) })
		return
	}
	s.sets[p].Ascend(item{Position: *after}, func(it item) bool {
		return it.Position == *after || yield(it.entry)
	})
}

func (s *storage) Descend(p rules.Place, yield func(*rules.Entry) bool) {
	s.sets[p].Reverse(func(it item) bool { return yield(it.entry) })
}

func (s *storage) Len(p rules.Place) int { return s.sets[p].Len() }

func (s *storage) Count(p rules.Place, limit float64) int {
	set := s.sets[p]
	return sort.Search(set.Len(), func(i int) bool {
		it, _ := set.GetAt(i)
		return it.Score > limit
	})
}
