package main

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string
		never    []string
		failed   int
		last     string
	}{
		{
			name: "pass and skip",
			in: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"noise\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    x_test.go:3: no zsh here\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
{"Action":"skip","Package":"no/tests"}
`,
			want:  []string{"ok  \tp\t0.1s", "p TestB: x_test.go:3: no zsh here"},
			never: []string{"noise", "PASS", "no/tests"},
			last:  "1 passed, 0 failed, 1 skipped",
		},
		{
			name: "failure",
			in: `{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"broken\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}
`,
			want:   []string{"broken"},
			never:  []string{"=== RUN"},
			failed: 1,
			last:   "0 passed, 1 failed, 0 skipped",
		},
		{
			name: "a panic ends the package with the test still open",
			in: `{"Action":"output","Package":"p","Test":"TestA","Output":"panic: oh\n"}
{"Action":"fail","Package":"p"}
`,
			want:   []string{"panic: oh"},
			failed: 1,
			last:   "0 passed, 1 failed, 0 skipped",
		},
		{
			name: "a fault of the race detector is no test's, and is told",
			in: `{"Action":"output","Package":"p","Test":"TestA","Output":"ThreadSanitizer: CHECK failed: tsan_rtl.cpp:1\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t1s\n"}
{"Action":"fail","Package":"p"}
`,
			want: []string{"ThreadSanitizer", "FAIL\tp"},
			last: "0 passed, 0 failed, 0 skipped",
		},
		{
			name: "a fault of the race detector behind a failure",
			in: `{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"ThreadSanitizer: CHECK failed: tsan_rtl.cpp:1\n"}
{"Action":"fail","Package":"p"}
`,
			want:   []string{"ThreadSanitizer"},
			failed: 2,
			last:   "0 passed, 2 failed, 0 skipped",
		},
		{
			name: "a package that does not build",
			in: `{"ImportPath":"p","Action":"build-output","Output":"p.go:1: undefined: x\n"}
{"ImportPath":"p","Action":"build-fail"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","FailedBuild":"p"}
`,
			want:   []string{"undefined: x", "[build failed]"},
			failed: 1,
			last:   "0 passed, 1 failed, 0 skipped",
		},
		{
			name: "not an event",
			in:   "go: something went wrong\n",
			want: []string{"something went wrong"},
			last: "0 passed, 0 failed, 0 skipped",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out)
			if err := r.read(strings.NewReader(test.in)); err != nil {
				t.Fatal(err)
			}
			r.end()
			for _, want := range test.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in:\n%s", want, out.String())
				}
			}
			for _, never := range test.never {
				if strings.Contains(out.String(), never) {
					t.Errorf("%q in:\n%s", never, out.String())
				}
			}
			if r.failed != test.failed {
				t.Errorf("failed = %d, want %d", r.failed, test.failed)
			}
			if !strings.HasSuffix(out.String(), "\n"+test.last+"\n") {
				t.Errorf("last line is not %q:\n%s", test.last, out.String())
			}
		})
	}
}
