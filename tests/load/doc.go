// Package load is a load of producers and consumers on running servers, and the record kept outside of them by which
// it is found whether they kept what they promise. Tests of whole systems share it.
//
// Vocabulary: the ledger is that record; a hold is a claim as a consumer knows it; a violation is a broken
// invariant of the architecture, 1 to 3 or 6 to 8; a target is where calls go, one server or the way to several.
//
// It speaks plain HTTP and JSON, on purpose not the SDK: what the SDK hides must not be hidden here.
package load
