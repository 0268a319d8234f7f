package sqlitestore

// FuseKind is the network file system in user space that a directory lies on.
func FuseKind(dir, mounts string) string { return fuseKind(dir, mounts) }
