// go-redis, unmodified, against a fondaco that serves the stores "members" and "carts": a single node in both versions
// of the protocol (`single`), or, as a client of Redis Cluster, three nodes, one of which is killed (`cluster`).
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
)

const rows = 5000

var background = context.Background()

func main() {
	switch os.Args[1] {
	case "single":
		for _, protocol := range []int{2, 3} {
			single(protocol)
		}
	case "cluster":
		cluster()
	default:
		panic("usage: single|cluster")
	}
}

func key(n int) string { return fmt.Sprintf("members:m%d", n) }

func value(n int) string { return fmt.Sprintf("value of m%d", n) }

// must returns the value of a call that must not fail.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func expect(expected, found any) {
	if !reflect.DeepEqual(expected, found) {
		panic(fmt.Sprintf("expected %v, found %v", expected, found))
	}
}
