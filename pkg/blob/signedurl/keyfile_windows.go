package signedurl

import "io/fs"

// othersMayRead is false: access lists, not mode bits, say so there, and a new file inherits the
// folder's.
func othersMayRead(fs.FileMode) bool { return false }

// syncDir does nothing: NTFS journals names itself and offers no such call.
func syncDir(string) error { return nil }
