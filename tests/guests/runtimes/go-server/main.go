// An ordinary Go server, for tests/tests/servers.rs.
package main

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

var count atomic.Int64

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d %s", count.Add(1), body)
	})
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		for number := 0; number < 3; number++ {
			fmt.Fprintf(w, "%d\n", number)
			w.(http.Flusher).Flush()
			time.Sleep(5 * time.Millisecond)
		}
	})
	mux.HandleFunc("/workers", func(w http.ResponseWriter, r *http.Request) {
		var sum atomic.Int64
		var all sync.WaitGroup
		for worker := 1; worker <= 100; worker++ {
			all.Add(1)
			go func(number int) {
				defer all.Done()
				time.Sleep(time.Millisecond)
				sum.Add(int64(number))
			}(worker)
		}
		all.Wait()
		fmt.Fprint(w, sum.Load())
	})
	mux.HandleFunc("/panic", func(w http.ResponseWriter, r *http.Request) { panic("as asked") })
	server := http.Server{Addr: ":8080", Handler: mux, ReadTimeout: time.Second, IdleTimeout: time.Second}
	fmt.Println(server.ListenAndServe())
}
