//! What is set on the sockets of connections.

/// Properties of connections; `None` leaves one as the transport has it. A transport ignores those that it has nothing for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Properties {
    /// Kernel's send buffer in octets, its own overhead not counted; bounded by the system.
    pub send_buffer: Option<u32>,
    /// Kernel's receive buffer in octets, its own overhead not counted; bounded by the system.
    pub receive_buffer: Option<u32>,
    /// Idle connections are probed, at the system's times.
    pub keep_alive: Option<bool>,
    /// Only hosts that are reached without a gateway.
    pub dont_route: Option<bool>,
    /// Small messages leave at once.
    pub no_delay: Option<bool>,
}
