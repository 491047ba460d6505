// Package netio is the kernel-socket data path: it binds sockets, moves
// datagrams in bursts and waits for them.
//
// Invariant: a socket that stays in use is never closed and reopened. Closing a
// UDP socket throws its queue away, and closing one member of a TCP listener
// group resets the connections queued on it.
//
//	Bind* (supervisor) --fd--> UDP (worker, one lane) --Recv--> burst.Burst
//	                                                  <--Send--
//	Poller: the lane's own epoll set, in which it waits by itself
//
// Every call is non-blocking by MSG_DONTWAIT, because O_NONBLOCK lives in the
// open file description, which all processes that inherited the socket share.
package netio
