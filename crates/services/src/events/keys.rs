//! The plain object keys of a server's factory and monitor.

/// Plain key of an [`EventChannelFactory`](super::EventChannelFactory).
pub const FACTORY_KEY: &str = "omniEvents";
/// Plain key of an [`EventMonitor`](super::EventMonitor).
pub const MONITOR_KEY: &str = "CorelaneEvents";
