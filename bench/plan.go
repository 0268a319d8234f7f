package main

import (
	"strings"
	"time"
)

// Plan is what a client process is to do, as one line of JSON. Every client
// knows when task i is due, so drift needs no payload.
type Plan struct {
	Job      string `json:"job"` // schedule, work or claim
	System   string `json:"system"`
	Addr     string `json:"addr"`
	Tasks    int    `json:"tasks"`
	First    int    `json:"first"`     // index of the first task
	Callers  int    `json:"callers"`   // that schedule
	Batch    int    `json:"batch"`     // tasks a call; zero is one call a task
	Body     int    `json:"body"`      // bytes; zero is none
	Queues   int    `json:"queues"`    // to work on, and to schedule into in turn; zero is one
	Slots    int    `json:"slots"`     // handlers at once
	Rounds   int    `json:"rounds"`    // of claim
	FromMs   int64  `json:"from_ms"`   // earliest due: Unix ms, or a delay if After
	SpreadMs int64  `json:"spread_ms"` // random addition to it
	After    bool   `json:"after"`
	EachUs   int64  `json:"each_us"` // each task is due so much later than the one before
	LeadMs   int64  `json:"lead_ms"` // with EachUs: a task is sent so long before its earliest due
}

// Result is what a client process found, as one line of JSON.
type Result struct {
	Seconds float64   `json:"seconds"` // of the job alone
	CPU     float64   `json:"cpu"`     // seconds of this process
	Allocs  float64   `json:"allocs"`  // zero if unknown
	Claims  int64     `json:"claims"`  // zero if unknown
	Left    int64     `json:"left"`    // tasks still there afterwards
	Tasks   []int     `json:"tasks"`   // indices in the order they were handled
	DriftUs []int64   `json:"drift_us"`
	ClaimMs []float64 `json:"claim_ms"`
	Err     string    `json:"err"`
}

// scatter is a fixed random number for every i. The client in JavaScript has
// the same one.
func scatter(i int) uint32 {
	h := uint32(i) + 0x9e3779b9
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}

// offsetMs is when task i is due: Unix ms, or a delay.
func (p *Plan) offsetMs(i int) int64 {
	due := p.FromMs + int64(i)*p.EachUs/1000
	if p.SpreadMs > 0 {
		due += int64(scatter(i)) % p.SpreadMs
	}
	return due
}

// sendAt is when task i of a paced plan is scheduled.
func (p *Plan) sendAt(i int) time.Time {
	return time.UnixMilli(p.FromMs - p.LeadMs + int64(i)*p.EachUs/1000)
}

// tasks makes n tasks from index first on.
func (p *Plan) tasks(first, n int) []*Task {
	all, out := make([]Task, n), make([]*Task, n)
	var body []byte
	if p.Body > 0 {
		body = []byte(strings.Repeat("b", p.Body))
	}
	for i := range all {
		t := &all[i]
		t.Member, t.Body = memberOf(first+i), body
		t.Queue = (first + i) % max(p.Queues, 1)
		t.ID, _, _ = strings.Cut(t.Member, ":")
		if offset := p.offsetMs(first + i); p.After {
			t.After = time.Duration(offset) * time.Millisecond
		} else {
			t.Due = time.UnixMilli(offset)
		}
		out[i] = t
	}
	return out
}
