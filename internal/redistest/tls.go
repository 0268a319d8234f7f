package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// WithTLS makes the server listen on a second port that speaks TLS, with a
// certificate for 127.0.0.1 and localhost from an authority of its own. Clients
// need no certificate. The plain port stays open.
func WithTLS() Option {
	return func(o *options) {
		o.tls = true
		o.ports = append(o.ports, "tls-port")
		o.settings = append(o.settings,
			setting{"tls-ca-cert-file", caFile},
			setting{"tls-cert-file", certFile},
			setting{"tls-key-file", keyFile},
			setting{"tls-auth-clients", "no"})
	}
}

// TLSURL returns the address of the TLS port as rediss://127.0.0.1:port. The
// server must have been started WithTLS, for CAFile as well.
func (s *Server) TLSURL() string {
	s.t.Helper()
	s.needTLS()
	return newURL("rediss", loopback(s.morePorts["tls-port"]), s.password()).String()
}

// CAFile returns the path of the authority's certificate, in PEM.
func (s *Server) CAFile() string {
	s.t.Helper()
	s.needTLS()
	return filepath.Join(s.dir, caFile)
}

func (s *Server) needTLS() {
	s.t.Helper()
	if !s.tls {
		s.t.Fatal("redistest: the server does not speak TLS; start it WithTLS")
	}
}

// The files lie in the server's directory, where it looks for them.
const (
	caFile   = "ca.crt"
	certFile = "server.crt"
	keyFile  = "server.key"
)

// writeCertificates makes an authority and a certificate that it signed. Nobody
// needs the authority's key any more.
func writeCertificates(dir string) error {
	authority := template("redistest authority")
	authority.IsCA = true
	authority.KeyUsage = x509.KeyUsageCertSign
	server := template("redistest server")
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	server.DNSNames = []string{"localhost"}

	authorityKey, authorityKeyErr := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	key, keyErr := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err := errors.Join(authorityKeyErr, keyErr); err != nil {
		return err
	}
	authorityCert, authorityErr := x509.CreateCertificate(rand.Reader, authority, authority, &authorityKey.PublicKey, authorityKey)
	cert, certErr := x509.CreateCertificate(rand.Reader, server, authority, &key.PublicKey, authorityKey)
	keyBytes, keyErr := x509.MarshalPKCS8PrivateKey(key)
	return errors.Join(authorityErr, certErr, keyErr,
		writePEM(filepath.Join(dir, caFile), "CERTIFICATE", authorityCert),
		writePEM(filepath.Join(dir, certFile), "CERTIFICATE", cert),
		writePEM(filepath.Join(dir, keyFile), "PRIVATE KEY", keyBytes))
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-24 * time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
