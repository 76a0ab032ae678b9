//! Plain object keys of the objects of a server of channels.

/// Plain key of the factory.
pub const FACTORY_KEY: &str = "omniEvents";
/// Plain key of the monitor.
pub const MONITOR_KEY: &str = "CorelaneEvents";
