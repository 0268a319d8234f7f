package push

import (
	"fmt"
	"net/netip"
	"syscall"
)

// special lists the addresses that are not on the public internet, by IANA's
// registries of special purposes. The first that contains an address counts.
var special = []struct {
	network netip.Prefix
	what    string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "of a carrier's NAT"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved for protocols"},
	{netip.MustParsePrefix("192.0.2.0/24"), "for documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "of a 6to4 relay"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},

	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("fc00::/7"), "private"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fec0::/10"), "private"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
	{netip.MustParsePrefix("2001::/23"), "reserved for protocols"},
	{netip.MustParsePrefix("2001:db8::/32"), "for documentation"},
	{netip.MustParsePrefix("3fff::/20"), "for documentation"},
}

var (
	globalUnicast = netip.MustParsePrefix("2000::/3") // the rest of IPv6 is not in use
	nat64         = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour     = netip.MustParsePrefix("2002::/16")
)

// control is called with each address that is about to be dialed, after names
// were resolved, so a name cannot lead elsewhere than what was checked.
func (o Options) control(_, address string, _ syscall.RawConn) error {
	if o.AllowPrivate {
		return nil
	}
	dialed, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q is not one that can be checked: %w", address, err)
	}
	addr := dialed.Addr().Unmap().WithZone("")
	if what := o.refuses(addr); what != "" {
		return fmt.Errorf("address %s is %s, nothing is pushed there unless it is allowed", addr, what)
	}
	return nil
}

// refuses returns what is wrong with an address, or nothing.
func (o Options) refuses(addr netip.Addr) string {
	for _, network := range o.Allow {
		if network.Contains(addr) {
			return ""
		}
	}
	if inner, ok := embedded(addr); ok {
		return o.refuses(inner)
	}
	for _, s := range special {
		if s.network.Contains(addr) {
			return s.what
		}
	}
	if addr.Is6() && !globalUnicast.Contains(addr) {
		return "not on the internet"
	}
	return ""
}

// embedded returns the IPv4 address that an IPv6 address is another way to.
func embedded(addr netip.Addr) (netip.Addr, bool) {
	b := addr.As16()
	switch {
	case nat64.Contains(addr):
		return netip.AddrFrom4([4]byte(b[12:])), true
	case sixToFour.Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return netip.Addr{}, false
}
