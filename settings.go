package dueq

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Settings of one queue. They live in the store and take effect everywhere
// within a second. DefaultSettings has the values of a queue that nobody set.
type Settings struct {
	Batch       int           // tasks per claim, at most; 1 to 1,000
	Concurrency int           // handlers running at once in one worker; 1 to 10,000
	Timeout     time.Duration // of one run of a handler; 1 ms to 24 h
	Lease       time.Duration // how long a claimed task stays invisible without renewal; 1 s to LeaseMax
	LeaseMax    time.Duration // longest lease anybody may ask for; 1 s to 30 d
	Retries     int           // failures that are tried again before a task is dead; 0 to 100,000
	RetryFirst  time.Duration // delay after the first failure; 1 ms to 30 d
	RetryFactor float64       // growth of the delay with each further failure; 1 to 100
	RetryCap    time.Duration // longest delay between retries; 1 ms to 365 d
	RetryJitter float64       // share of the delay added at random, so never earlier; 0 to 1
	Delivery    Delivery      // at least once, or at most once
	MaxLate     time.Duration // a task overdue by more is dead instead of run; zero is off
	Priority    bool          // members may carry priorities, and all spellings of id:kind are one task
	DeadKeep    time.Duration // how long dead letters are kept; 1 s to 3,650 d
	BodyMax     int           // longest body in bytes; 0 to 16 MiB
	Paused      bool          // nothing is handed out; scheduling goes on
	// WaitReplicas is how many replicas must have a change before its caller is
	// told of it; 0 to 10. Only a store with replicas takes other than zero.
	WaitReplicas int
	// Forward is where due tasks are moved instead of being handed out by a
	// process that forwards: list:KEY or stream:KEY, without :KEY the queue's own
	// key of that use; empty is off.
	Forward string
	// Push is the address, http:// or https://, that a process which pushes
	// posts due tasks to; empty is off.
	Push    string
	Version int64 // grows with every change; zero if nobody changed anything
}

// Delivery is what a queue guarantees when a worker dies.
type Delivery uint8

const (
	AtLeastOnce Delivery = iota // leased, comes back when its worker dies
	AtMostOnce                  // gone from the store when claimed: cheaper, lost when its worker dies
)

var deliveryNames = [...]string{"at_least_once", "at_most_once"}

func (d Delivery) String() string { return nameOf(deliveryNames[:], d) }

// DefaultSettings returns the settings of a queue that nobody set.
func DefaultSettings() Settings {
	return Settings{
		Batch: 100, Concurrency: 100,
		Timeout: 3 * time.Second, Lease: 30 * time.Second, LeaseMax: 24 * time.Hour,
		Retries: 3, RetryFirst: 5 * time.Second, RetryFactor: 2, RetryCap: time.Hour, RetryJitter: 0.1,
		DeadKeep: 7 * day, BodyMax: 64 << 10,
	}
}

// SettingsPatch holds new values by name, as they are typed: 30s, 7d, 10%,
// on. The value default takes the default again.
type SettingsPatch map[string]string

const day = 24 * time.Hour

// Default as a value of a SettingsPatch takes the default again.
const Default = "default"

// A setting has one name on every surface, and in a store a raw value: whole
// numbers, durations in ms.
type setting struct {
	name   string
	raw    string // its field in the store, which carries the unit
	format func(*Settings) string
	parse  func(*Settings, string) error
	encode func(*Settings) string
	decode func(*Settings, string) error
}

var settings = []setting{
	intSetting("batch", 1, MaxItems, func(s *Settings) *int { return &s.Batch }),
	intSetting("concurrency", 1, 10_000, func(s *Settings) *int { return &s.Concurrency }),
	durationSetting("timeout", time.Millisecond, day, func(s *Settings) *time.Duration { return &s.Timeout }),
	durationSetting("lease", time.Second, 30*day, func(s *Settings) *time.Duration { return &s.Lease }),
	durationSetting("lease_max", time.Second, 30*day, func(s *Settings) *time.Duration { return &s.LeaseMax }),
	intSetting("retries", 0, 100_000, func(s *Settings) *int { return &s.Retries }),
	durationSetting("retry_first", time.Millisecond, 30*day, func(s *Settings) *time.Duration { return &s.RetryFirst }),
	floatSetting("retry_factor", 1, 100, func(s *Settings) *float64 { return &s.RetryFactor }),
	durationSetting("retry_cap", time.Millisecond, 365*day, func(s *Settings) *time.Duration { return &s.RetryCap }),
	percentSetting("retry_jitter", func(s *Settings) *float64 { return &s.RetryJitter }),
	nameSetting("delivery", deliveryNames[:], func(s *Settings) *Delivery { return &s.Delivery }),
	offOr(durationSetting("max_late", time.Millisecond, 3650*day, func(s *Settings) *time.Duration { return &s.MaxLate })),
	boolSetting("priority", func(s *Settings) *bool { return &s.Priority }),
	durationSetting("dead_keep", time.Second, 3650*day, func(s *Settings) *time.Duration { return &s.DeadKeep }),
	intSetting("body_max", 0, 16<<20, func(s *Settings) *int { return &s.BodyMax }),
	boolSetting("paused", func(s *Settings) *bool { return &s.Paused }),
	intSetting("wait_replicas", 0, 10, func(s *Settings) *int { return &s.WaitReplicas }),
	textSetting("forward", func(s *Settings) *string { return &s.Forward }, validateDestination),
	textSetting("push", func(s *Settings) *string { return &s.Push }, validateAddress),
}

// With returns the settings with the patch applied, or a [*FieldError] that
// names the setting and the reason.
func (s Settings) With(patch SettingsPatch) (Settings, error) {
	defaults := DefaultSettings()
	for _, name := range slices.Sorted(maps.Keys(patch)) {
		set, ok := findSetting(name)
		if !ok {
			return s, &FieldError{name, "is not a setting; there are " + strings.Join(SettingNames(), ", ")}
		}
		value := strings.TrimSpace(patch[name])
		if value == Default {
			value = set.format(&defaults)
		}
		if err := set.parse(&s, value); err != nil {
			return s, &FieldError{name, err.Error()}
		}
	}
	return s, s.validate()
}

func (s Settings) validate() error {
	if s.Lease > s.LeaseMax {
		return &FieldError{"lease", fmt.Sprintf("%s is over lease_max, %s", FormatDuration(s.Lease), FormatDuration(s.LeaseMax))}
	}
	return nil
}

// Format returns the values by name, as they are typed.
func (s Settings) Format() map[string]string {
	out := make(map[string]string, len(settings))
	for _, set := range settings {
		out[set.name] = set.format(&s)
	}
	return out
}

// SettingNames lists the settings in the order they are shown.
func SettingNames() []string {
	names := make([]string, len(settings))
	for i, set := range settings {
		names[i] = set.name
	}
	return names
}

// Encode returns the settings that the patch names as a store keeps them:
// field with unit → whole number or word; fields to forget have an empty
// value. It is for implementations of Store, and expects a patch that With
// accepted.
func (s Settings) Encode(patch SettingsPatch) map[string]string {
	out := make(map[string]string, len(patch))
	for name, value := range patch {
		set, _ := findSetting(name)
		out[set.raw] = ""
		if strings.TrimSpace(value) != Default {
			out[set.raw] = set.encode(&s)
		}
	}
	return out
}

// DecodeSettings reads what Encode wrote. Fields that it does not know are
// passed over; one it cannot read is an error and takes its default.
func DecodeSettings(fields map[string]string) (Settings, error) {
	s := DefaultSettings()
	var firstErr error
	for _, set := range settings {
		value, ok := fields[set.raw]
		if !ok {
			continue
		}
		if err := set.decode(&s, value); err != nil && firstErr == nil {
			firstErr = &FieldError{set.raw, err.Error()}
		}
	}
	s.Version, _ = strconv.ParseInt(fields["version"], 10, 64)
	return s, firstErr
}

func findSetting(name string) (setting, bool) {
	for _, set := range settings {
		if set.name == name {
			return set, true
		}
	}
	return setting{}, false
}

func intSetting(name string, low, high int, field func(*Settings) *int) setting {
	parse := func(s *Settings, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < low || n > high {
			return fmt.Errorf("%q is not a whole number from %d to %d", v, low, high)
		}
		*field(s) = n
		return nil
	}
	format := func(s *Settings) string { return strconv.Itoa(*field(s)) }
	return setting{name, name, format, parse, format, parse}
}

func durationSetting(name string, low, high time.Duration, field func(*Settings) *time.Duration) setting {
	bounded := func(s *Settings, v string, d time.Duration, err error) error {
		if err != nil || d < low || d > high || d%time.Millisecond != 0 {
			return fmt.Errorf("%q is not a duration of whole milliseconds from %s to %s", v, FormatDuration(low), FormatDuration(high))
		}
		*field(s) = d
		return nil
	}
	return setting{
		name, name + "_ms",
		func(s *Settings) string { return FormatDuration(*field(s)) },
		func(s *Settings, v string) error {
			d, err := ParseDuration(v)
			return bounded(s, v, d, err)
		},
		func(s *Settings) string { return strconv.FormatInt(field(s).Milliseconds(), 10) },
		func(s *Settings, v string) error {
			const most = math.MaxInt64 / int64(time.Millisecond)
			ms, err := strconv.ParseInt(v, 10, 64)
			return bounded(s, v, time.Duration(max(-most, min(ms, most)))*time.Millisecond, err)
		},
	}
}

// offOr lets a setting be off, which is zero.
func offOr(set setting) setting {
	var zero Settings
	format, parse, encode, decode := set.format, set.parse, set.encode, set.decode
	zeroText, zeroRaw := format(&zero), encode(&zero)
	set.format = func(s *Settings) string {
		if text := format(s); text != zeroText {
			return text
		}
		return "off"
	}
	off := func(s *Settings) error {
		s.MaxLate = 0
		return nil
	}
	set.parse = func(s *Settings, v string) error {
		if v == "off" {
			return off(s)
		}
		return parse(s, v)
	}
	set.decode = func(s *Settings, v string) error {
		if v == zeroRaw {
			return off(s)
		}
		return decode(s, v)
	}
	return set
}

func floatSetting(name string, low, high float64, field func(*Settings) *float64) setting {
	parse := func(s *Settings, v string) error {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || !(f >= low && f <= high) {
			return fmt.Errorf("%q is not a number from %v to %v", v, low, high)
		}
		*field(s) = f
		return nil
	}
	format := func(s *Settings) string { return strconv.FormatFloat(*field(s), 'f', -1, 64) }
	return setting{name, name, format, parse, format, parse}
}

func percentSetting(name string, field func(*Settings) *float64) setting {
	percent := func(s *Settings, v string) error {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || !(f >= 0 && f <= 100) {
			return fmt.Errorf("%q is not a share from 0%% to 100%%", v)
		}
		*field(s) = math.Round(f*1e4) / 1e6 // as number writes it
		return nil
	}
	number := func(s *Settings) string {
		return strconv.FormatFloat(math.Round(*field(s)*1e6)/1e4, 'f', -1, 64)
	}
	return setting{
		name, name + "_percent",
		func(s *Settings) string { return number(s) + "%" },
		func(s *Settings, v string) error { return percent(s, strings.TrimSuffix(v, "%")) },
		number,
		percent,
	}
}

func boolSetting(name string, field func(*Settings) *bool) setting {
	parse := func(s *Settings, v string) error {
		switch v {
		case "on", "true", "1":
			*field(s) = true
		case "off", "false", "0":
			*field(s) = false
		default:
			return fmt.Errorf("%q is neither on nor off", v)
		}
		return nil
	}
	text := func(on, off string) func(*Settings) string {
		return func(s *Settings) string {
			if *field(s) {
				return on
			}
			return off
		}
	}
	return setting{name, name, text("on", "off"), parse, text("1", "0"), parse}
}

func nameSetting[T ~uint8](name string, names []string, field func(*Settings) *T) setting {
	parse := func(s *Settings, v string) error {
		i := slices.Index(names, v)
		if i < 0 {
			return fmt.Errorf("%s", quoteNotOne(v, names))
		}
		*field(s) = T(i)
		return nil
	}
	format := func(s *Settings) string { return nameOf(names, *field(s)) }
	return setting{name, name, format, parse, format, parse}
}

// textSetting is off, which is empty, or a text that check accepts.
func textSetting(name string, field func(*Settings) *string, check func(string) error) setting {
	parse := func(s *Settings, v string) error {
		if v == "off" {
			v = ""
		} else if err := check(v); err != nil {
			return err
		}
		*field(s) = v
		return nil
	}
	format := func(s *Settings) string { return cmp.Or(*field(s), "off") }
	return setting{name, name, format, parse, format, parse}
}

// ParseDestination reads a setting forward, list:KEY or stream:KEY; without
// :KEY key is empty.
func ParseDestination(s string) (stream bool, key string, err error) {
	kind, key, named := strings.Cut(s, ":")
	switch {
	case kind != "list" && kind != "stream":
		err = fmt.Errorf("%.100q is not list, stream, list:KEY or stream:KEY", s)
	case named && key == "", len(key) > 512, strings.ContainsFunc(key, unicode.IsControl), !utf8.ValidString(key):
		err = fmt.Errorf("%.100q does not name a key of 1 to 512 bytes without control characters", s)
	}
	return kind == "stream", key, err
}

func validateDestination(v string) error {
	_, _, err := ParseDestination(v)
	return err
}

func validateAddress(v string) error {
	u, err := url.Parse(v)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" ||
		u.User != nil || u.Fragment != "" || len(v) > 2048 || strings.ContainsFunc(v, unicode.IsControl) {
		return errors.New("is not an http:// or https:// address of at most 2048 bytes without user and fragment")
	}
	return nil
}

func quoteNotOne(v string, names []string) string {
	return fmt.Sprintf("%q is not one of %s", v, strings.Join(names, ", "))
}
