//! Numbers in, numbers out: which rows an epoch draws. No files, no threads.
