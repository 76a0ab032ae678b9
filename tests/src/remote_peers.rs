//! TCP transports whose accepted connections seem to come from another machine.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use corelane_net::{
    ConnectionProperties, Endpoint, Listener, Peer, ReadinessCallback, ShutdownDirection, Stream, TcpTransport,
    Transport, WaitLimit,
};
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, Mutex};

use crate::stream_wrapper::wrap_streams;

#[derive(Debug)]
struct Elsewhere(Box<dyn Stream>, Peer);

/// Makes a TCP transport whose accepted connections seem to come from 192.0.2.7.
#[must_use]
pub fn tcp_with_remote_peers() -> Arc<dyn Transport> {
    wrap_streams(Arc::new(TcpTransport::new()), |stream, to| {
        if to.is_some() {
            return stream;
        }
        let Peer::Ip(address) = stream.peer() else { return stream };
        let peer = Peer::Ip(SocketAddr::from(([192, 0, 2, 7], address.port())));
        Box::new(Elsewhere(stream, peer))
    })
}

/// Makes a TCP transport whose listeners are on 127.0.0.1, but report the address that was
/// requested. Accepted connections seem to come from 192.0.2.7.
#[must_use]
pub fn tcp_with_remote_addresses() -> (Arc<dyn Transport>, Arc<RemoteListeners>) {
    let listeners = Arc::new(RemoteListeners(Mutex::new("listeners elsewhere", LockScope::Orb, Vec::new())));
    (Arc::new(Named(tcp_with_remote_peers(), Arc::clone(&listeners))), listeners)
}

/// The listeners of a transport, with their real addresses and the threads that accepted their
/// connections.
#[derive(Debug)]
pub struct RemoteListeners(Mutex<Vec<RemoteListener>>);

#[derive(Debug)]
struct RemoteListener {
    named: Endpoint,
    local: Endpoint,
    accepting_threads: Vec<String>,
}

impl RemoteListeners {
    /// Returns the real address of the listener that reports the address `named`.
    ///
    /// # Panics
    /// Panics if there is no such listener.
    #[must_use]
    pub fn local_endpoint_of(&self, named: &Endpoint) -> Endpoint {
        self.0.lock().iter().find(|listener| listener.named == *named).expect("a listener").local.clone()
    }

    /// Returns the name of the accepting thread for each connection of the listener that reports
    /// the address `named`.
    #[must_use]
    pub fn accepting_threads(&self, named: &Endpoint) -> Vec<String> {
        self.0
            .lock()
            .iter()
            .filter(|listener| listener.named == *named)
            .flat_map(|listener| listener.accepting_threads.clone())
            .collect()
    }
}

#[derive(Debug)]
struct Named(Arc<dyn Transport>, Arc<RemoteListeners>);

impl Transport for Named {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn supports(&self, endpoint: &Endpoint) -> bool {
        self.0.supports(endpoint)
    }

    fn connect_with_properties(
        &self,
        endpoint: &Endpoint,
        properties: &ConnectionProperties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        self.0.connect_with_properties(endpoint, properties, deadline)
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        let inner = self.0.listen(&Endpoint::tcp("127.0.0.1", 0))?;
        let listener = RemoteListener {
            named: endpoint.clone(),
            local: inner.local_endpoint().clone(),
            accepting_threads: Vec::new(),
        };
        self.1.0.lock().push(listener);
        Ok(Box::new(NamedListener { inner, local: endpoint.clone(), listeners: Arc::clone(&self.1) }))
    }
}

#[derive(Debug)]
struct NamedListener {
    inner: Box<dyn Listener>,
    local: Endpoint,
    listeners: Arc<RemoteListeners>,
}

impl Listener for NamedListener {
    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        let accepted = self.inner.accept()?;
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        let mut listeners = self.listeners.0.lock();
        if let Some(listener) = listeners.iter_mut().find(|listener| listener.named == self.local) {
            listener.accepting_threads.push(thread);
        }
        Ok(accepted)
    }

    fn set_properties(&self, properties: &ConnectionProperties) -> io::Result<()> {
        self.inner.set_properties(properties)
    }

    fn readiness_descriptor(&self) -> BorrowedFd<'_> {
        self.inner.readiness_descriptor()
    }

    fn local_endpoint(&self) -> &Endpoint {
        &self.local
    }
}

impl Stream for Elsewhere {
    fn recv(&self, buffer: &mut [u8], wait: WaitLimit) -> io::Result<usize> {
        self.0.recv(buffer, wait)
    }

    fn send_vectored(&self, slices: &[IoSlice<'_>], wait: WaitLimit) -> io::Result<usize> {
        self.0.send_vectored(slices, wait)
    }

    fn readiness_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.readiness_descriptor()
    }

    fn arm_readiness(&self) -> io::Result<Option<bool>> {
        self.0.arm_readiness()
    }

    fn reports_every_arrival(&self) -> bool {
        self.0.reports_every_arrival()
    }

    fn set_readiness_callback(&self, report: ReadinessCallback) -> bool {
        self.0.set_readiness_callback(report)
    }

    fn set_coarse_timeouts(&self, receive: Duration, send: Duration) -> io::Result<()> {
        self.0.set_coarse_timeouts(receive, send)
    }

    fn set_dscp(&self, dscp: u8) -> io::Result<()> {
        self.0.set_dscp(dscp)
    }

    fn shutdown(&self, direction: ShutdownDirection) {
        self.0.shutdown(direction);
    }

    fn peer(&self) -> &Peer {
        &self.1
    }
}
