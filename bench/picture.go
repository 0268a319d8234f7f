package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
)

// panel is one chart of the picture: medians over a logarithmic x.
type panel struct {
	title, work, xTitle string
	curves              []curve
}

type curve struct{ metric, title, colour string }

var panels = []panel{
	{"tasks/s", "growth", "tasks scheduled", []curve{
		{"schedule_per_s", "schedule", "#2a78b8"}, {"drain_per_s", "drain", "#c8552b"}}},
	{"claim of 100, ms", "growth", "tasks scheduled", []curve{
		{"claim_p50_ms", "p50", "#2a78b8"}, {"claim_p99_ms", "p99", "#c8552b"}}},
	{"drift at 1,000/s, ms", "queues", "queues in one process", []curve{
		{"drift_p50_ms", "p50", "#2a78b8"}, {"drift_p99_ms", "p99", "#c8552b"}}},
}

const (
	panelWidth, panelHeight             = 260.0, 210.0
	padLeft, padRight, padTop, padBelow = 46.0, 14.0, 34.0, 38.0
)

type point struct{ x, y float64 }

// writePicture draws the growth into an SVG file.
func writePicture(file string, lines []line) error {
	var b strings.Builder
	drawPicture(&b, lines)
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

func drawPicture(w io.Writer, lines []line) {
	width := panelWidth * float64(len(panels))
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="10" fill="#444">`+"\n", width, panelHeight)
	fmt.Fprintf(w, `<rect width="%.0f" height="%.0f" fill="#fff"/>`+"\n", width, panelHeight)
	for i, p := range panels {
		fmt.Fprintf(w, `<g transform="translate(%.0f 0)">`+"\n", float64(i)*panelWidth)
		p.draw(w, lines)
		fmt.Fprintln(w, "</g>")
	}
	fmt.Fprintln(w, "</svg>")
}

func (p panel) draw(w io.Writer, lines []line) {
	curves := make([][]point, len(p.curves))
	var f frame
	for i, c := range p.curves {
		curves[i] = points(lines, p.work, c.metric)
		f.take(curves[i])
	}
	fmt.Fprintf(w, `<text x="%.0f" y="14" font-size="12" fill="#222">%s</text>`+"\n", padLeft, p.title)
	fmt.Fprintf(w, `<text x="%.0f" y="%.0f" text-anchor="middle">%s</text>`+"\n", (panelWidth+padLeft-padRight)/2, panelHeight-6, p.xTitle)
	if f.yMax == 0 {
		return
	}
	f.axes(w)
	for i, c := range p.curves {
		f.plot(w, c, curves[i])
		fmt.Fprintf(w, `<text x="%.0f" y="28" fill="%s">%s</text>`+"\n", padLeft+float64(i)*60, c.colour, c.title)
	}
}

// points are the medians of a metric by the number that is the case.
func points(lines []line, work, metric string) []point {
	var out []point
	for _, l := range lines {
		if f, ok := l.Figures[metric]; ok && l.Work == work {
			out = append(out, point{number(strings.ReplaceAll(l.Case, ",", "")), f.Median})
		}
	}
	return out
}

// frame maps figures to the panel: x by decades, y from zero to a round number.
type frame struct{ xMin, xMax, yMax float64 }

func (f *frame) take(points []point) {
	for _, p := range points {
		x := math.Log10(p.x)
		if f.yMax == 0 {
			f.xMin, f.xMax = x, x
		}
		f.xMin, f.xMax = min(f.xMin, x), max(f.xMax, x)
		f.yMax = max(f.yMax, roundUp(p.y))
	}
}

// roundUp returns the next of 1, 2, 5 × 10ⁿ.
func roundUp(y float64) float64 {
	if y <= 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(y)))
	for _, n := range []float64{1, 2, 5} {
		if y <= n*unit {
			return n * unit
		}
	}
	return 10 * unit
}

func (f frame) x(x float64) float64 {
	span := max(f.xMax-f.xMin, 1)
	return padLeft + (math.Log10(x)-f.xMin)/span*(panelWidth-padLeft-padRight)
}

func (f frame) y(y float64) float64 {
	return panelHeight - padBelow - y/f.yMax*(panelHeight-padTop-padBelow)
}

func (f frame) axes(w io.Writer) {
	const steps = 4
	for i := range steps + 1 {
		value := f.yMax * float64(i) / steps
		fmt.Fprintf(w, `<path d="M%.1f %.1fH%.1f" stroke="#ddd"/>`, padLeft, f.y(value), panelWidth-padRight)
		fmt.Fprintf(w, `<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`+"\n", padLeft-4, f.y(value)+3, brief(value))
	}
	for decade := math.Ceil(f.xMin); decade <= f.xMax+1e-9; decade++ {
		x := f.x(math.Pow(10, decade))
		fmt.Fprintf(w, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", x, panelHeight-padBelow+14, brief(math.Pow(10, decade)))
	}
}

// brief writes 1,000 as 1 k and 1,000,000 as 1 M.
func brief(f float64) string {
	switch {
	case f >= 1e6:
		return short(f/1e6) + " M"
	case f >= 1e3:
		return short(f/1e3) + " k"
	}
	return short(f)
}

func (f frame) plot(w io.Writer, c curve, points []point) {
	var path strings.Builder
	for i, p := range points {
		letter := "L"
		if i == 0 {
			letter = "M"
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", letter, f.x(p.x), f.y(p.y))
		fmt.Fprintf(w, `<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"/>`, f.x(p.x), f.y(p.y), c.colour)
	}
	fmt.Fprintf(w, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", path.String(), c.colour)
}
