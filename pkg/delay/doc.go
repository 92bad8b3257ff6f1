// Package delay is the use case of messages that wait: it promotes what is due from the delayed index
// into segments, and lets auditors list, edit and cancel what is not.
//
// Vocabulary: an entry is a record of the index: messages of one produce call with one visible and
// one expiry time; a message's home id is what its producer was told, its first place in the index;
// an edit moves a message to an entry of its own, and a forward leads there from the home id; a
// forward whose message was promoted before the home's visible time is left as a tombstone; a chunk
// is what one transaction promotes; the backstop is the scheduled promotion that needs no consumer.
//
// Invariants: a message leaves the index only in the transaction that appends it, or by cancellation
// or expiry; so it is never promoted twice, never lost and never early, whoever stops where. Whatever
// touches an entry does so by its version, so of promoter, editor and canceller one wins and the others
// see that. A forward is only ever written in a transaction with the entry that it leads to. A topic
// that was never delayed costs no store call here.
//
// Non-goals: putting messages into the index (pkg/produce); removing the bytes of what was cancelled,
// expired or edited (the compactor's); recurring messages.
package delay
