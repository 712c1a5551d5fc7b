// Command delayproxy stands for a slow network between a client and a server: it passes TCP connections on, later
// and, if asked to, slower.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"waldo/wire/wiretest"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "`address` to listen on")
	to := flag.String("to", "", "`address` to pass connections on to")
	delay := flag.Duration("delay", 25*time.Millisecond, "`time` that each direction takes")
	rate := flag.Int("rate", 0, "`bytes` a second in each direction of a connection, 0 for no bound")
	flag.Parse()
	if *to == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "usage: delayproxy -to HOST:PORT [-listen HOST:PORT] [-delay 25ms] [-rate N]")
		os.Exit(2)
	}
	p, err := wiretest.StartProxy(*listen, *to)
	if err != nil {
		fmt.Fprintln(os.Stderr, "delayproxy:", err)
		os.Exit(1)
	}
	p.SetDelay(*delay)
	p.SetRate(*rate)
	fmt.Println(p.Addr())
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	<-interrupted
	p.Close()
}
