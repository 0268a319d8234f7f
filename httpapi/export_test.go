package httpapi

// FormatLease is what a claim answers as the lease of a task.
var FormatLease = formatLease
