package redisstore

// CheckVersion is the check that Open makes of INFO server.
var CheckVersion = checkVersion

// NeededCommands are what Open asks a user's rights for.
func NeededCommands() []string { return texts(needed) }
