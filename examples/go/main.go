// An ordinary Go server. Each request finds `count` as it was before the first one.
package main

import (
	"fmt"
	"net/http"
	"sync/atomic"
)

var count atomic.Int64

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "Hello from Go: request %d\n", count.Add(1))
	})
	fmt.Println(http.ListenAndServe(":8080", nil))
}
