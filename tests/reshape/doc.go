// Package reshape changes the segments of a topic all the time, by hand and by the leader, while producers and
// consumers work and the server is killed, and holds what they saw against the promises of docs/scaling.md:
// nothing lost or doubled, each key in order, no call refused because of a change, every change told.
package reshape
