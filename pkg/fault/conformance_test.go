package fault_test

import (
	"testing"

	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/meta/metatest"
)

func TestMetaConformance(t *testing.T) {
	metatest.Run(t, metatest.Harness{
		// The suite breaks rules on purpose, so violations are not reported.
		New: func(*testing.T) meta.Store { return fault.Meta(memmeta.New(nil), fault.Script(fault.Options{})) },
	})
}
