//! How a server comes to life. A driver starts and ends it, and knows nothing of messages (that is
//! `transport`), of restarts or of calls; the runner joins the two.

pub(crate) mod process;
