//! Properties of connections that a program may request from a transport.

/// Properties that a program requests for connections. `None` means the transport's default, and a
/// transport ignores properties that do not apply to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConnectionProperties {
    /// Size in bytes of the kernel's send buffer, without the kernel's overhead. Over shared memory
    /// it is the size of the ring to the peer.
    pub send_buffer_size: Option<u32>,
    /// Size in bytes of the kernel's receive buffer, without the kernel's overhead. Over shared
    /// memory it is the size of the ring from the peer.
    pub receive_buffer_size: Option<u32>,
    /// If true, the kernel probes idle connections at the system's default intervals.
    pub keep_alive: Option<bool>,
    /// If true, the connection reaches only hosts that need no gateway.
    pub dont_route: Option<bool>,
    /// If true, the kernel sends small messages at once (no Nagle delay).
    pub no_delay: Option<bool>,
}
