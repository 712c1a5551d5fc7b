package wiretest

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
)

// Bubble is [synctest.Test] in a process of its own. A test that uses yamux inside a bubble needs it: yamux keeps its
// timers in a pool of the whole process, and neither may one of the bubble be used outside nor the other way round.
// t and every test above it are run again in that process up to this call, so they do nothing else that matters.
func Bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	const inside = "WIRETEST_BUBBLE"
	if os.Getenv(inside) == t.Name() {
		synctest.Test(t, test)
		return
	}
	names := strings.Split(t.Name(), "/")
	for i, name := range names {
		names[i] = "^" + regexp.QuoteMeta(name) + "$"
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+strings.Join(names, "/"), "-test.count=1", "-test.timeout=2m")
	child.Env = append(os.Environ(), inside+"="+t.Name())
	if output, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v in a process of its own:\n%s", err, output)
	}
}
