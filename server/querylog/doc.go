// Package querylog writes a sample of the answered queries to a file.
//
// Invariant: whoever answers queries never waits for the log. A lane fills a slot
// of a queue in place, without a lock, an allocation or a system call; if the queue
// is full the record is dropped and counted. A file that takes nothing (a full
// disk, a pipe that nobody reads) costs records, never answers.
//
//	lanes, streams --Begin, Commit--> queue --> one goroutine a process --write--> file
//
// All workers of a generation append whole lines to the same file, which the
// supervisor has opened. A line is one JSON object:
//
//	{"time":"2026-01-02T03:04:05.678901Z","client":"192.0.2.1","port":4711,"transport":"udp",
//	 "name":"www.example.com.","type":"A","class":"IN","rcode":"NOERROR","size":62,"epoch":7,"worker":0}
//
// Which queries are in the sample is up to chance, so that it says something about
// all of them: the gap between two is drawn anew each time.
package querylog
