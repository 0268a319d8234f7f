package push

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/dueq/dueq"
)

// Bounds of secrets: Standard Webhooks asks for 24 to 64 bytes.
const (
	secretPrefix = "whsec_"
	secretMin    = 24
	secretMax    = 64
	secretsMax   = 2
)

// QueueSecrets are the secrets of the queues that a pattern names.
type QueueSecrets struct {
	Queues  string   // the name of a queue, where * stands for any characters
	Secrets []string // one, or two while the secret is changed, the newer first
}

// ByPattern returns a function for Options.Secrets: the first entry that names
// the queue counts. A bad pattern or secret is a *dueq.FieldError, which does
// not tell the secret.
func ByPattern(list []QueueSecrets) (func(queue string) []string, error) {
	for i, entry := range list {
		if _, err := path.Match(entry.Queues, ""); err != nil || entry.Queues == "" {
			return nil, &dueq.FieldError{Field: fmt.Sprintf("push[%d].queues", i), Reason: fmt.Sprintf("%q is not a pattern", entry.Queues)}
		}
		if _, err := parseSecrets(entry.Secrets); err != nil {
			return nil, &dueq.FieldError{Field: fmt.Sprintf("push[%d].secrets", i), Reason: err.Error()}
		}
	}
	return func(queue string) []string {
		for _, entry := range list {
			if ok, _ := path.Match(entry.Queues, queue); ok {
				return entry.Secrets
			}
		}
		return nil
	}, nil
}

var errNoSecret = errors.New("has no secret to sign with")

func parseSecrets(secrets []string) ([]*webhooks.Webhook, error) {
	if len(secrets) == 0 {
		return nil, errNoSecret
	}
	if len(secrets) > secretsMax {
		return nil, fmt.Errorf("has %d secrets, the limit is %d", len(secrets), secretsMax)
	}
	signers := make([]*webhooks.Webhook, len(secrets))
	for i, secret := range secrets {
		text, prefixed := strings.CutPrefix(secret, secretPrefix)
		key, err := base64.StdEncoding.DecodeString(text)
		if !prefixed || err != nil || len(key) < secretMin || len(key) > secretMax {
			return nil, fmt.Errorf("has a secret that is not %s and %d to %d bytes in base64", secretPrefix, secretMin, secretMax)
		}
		if signers[i], err = webhooks.NewWebhookRaw(key); err != nil {
			return nil, err
		}
	}
	return signers, nil
}

// signers returns what signs a queue's deliveries, nothing if they go unsigned.
func (p *pusher) signers(queue string) ([]*webhooks.Webhook, error) {
	secrets := p.opts.Secrets(queue)
	if len(secrets) == 0 && p.opts.Unsigned {
		return nil, nil
	}
	return parseSecrets(secrets)
}

// maySign reports whether a queue's deliveries can be signed or need not be,
// and logs it when that ends.
func (p *pusher) maySign(queue string) bool {
	_, err := p.signers(queue)
	if err == nil {
		delete(p.barred, queue)
		return true
	}
	if text := err.Error(); p.barred[queue] != text {
		p.barred[queue] = text
		p.opts.Logger.Error("queue is not pushed", "queue", queue, "err", err)
	}
	return false
}

// sign adds the headers of Standard Webhooks.
func sign(header http.Header, id string, at time.Time, body []byte, signers []*webhooks.Webhook) error {
	header.Set(webhooks.HeaderWebhookID, id)
	header.Set(webhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	signatures := make([]string, len(signers))
	for i, signer := range signers {
		var err error
		if signatures[i], err = signer.Sign(id, at, body); err != nil {
			return err
		}
	}
	if len(signatures) > 0 {
		header.Set(webhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	}
	return nil
}
