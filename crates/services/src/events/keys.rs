//! The plain object keys of a server's factory and monitor.

/// Plain key of the factory.
pub const FACTORY_KEY: &str = "omniEvents";
/// Plain key of the monitor.
pub const MONITOR_KEY: &str = "CorelaneEvents";
