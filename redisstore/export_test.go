package redisstore

// CheckVersion is the check that Open makes of INFO server.
var CheckVersion = checkVersion
