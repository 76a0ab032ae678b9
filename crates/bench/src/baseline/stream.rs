//! Baseline over the streams of `corelane_net`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelane_net::{
    Endpoint, Listener, SharedMemoryTransport, SpinPolicy, Stream, TcpTransport, UnixTransport, WaitLimit,
};
use corelane_sys::socket::Address;
use corelane_sys::thread::{JoinHandle, ThreadBuilder};
use corelane_sys::{clock, poll};

use super::{BaselineAddress, BaselineTransport, LOOK, Medium, MessageSizes, StreamSpin, read_preamble};

const STOP_INTERVAL: Duration = Duration::from_millis(50);

fn policy(spin: StreamSpin) -> SpinPolicy {
    match spin {
        StreamSpin::Never => SpinPolicy::Never,
        StreamSpin::Adaptive => SpinPolicy::Adaptive { max_spin: LOOK },
    }
}

fn net_transport(transport: BaselineTransport) -> Box<dyn corelane_net::Transport> {
    match transport {
        BaselineTransport::Tcp => Box::new(TcpTransport::new()),
        BaselineTransport::Unix => Box::new(UnixTransport),
        BaselineTransport::SharedMemory => Box::new(SharedMemoryTransport::default()),
    }
}

fn endpoint(transport: BaselineTransport, address: &Address) -> io::Result<Endpoint> {
    match (transport, address) {
        (BaselineTransport::Tcp, Address::Inet(inet)) => Ok(Endpoint::tcp(inet.ip().to_string(), inet.port())),
        (BaselineTransport::Unix, Address::Unix(path)) => Ok(Endpoint::unix(path)),
        (BaselineTransport::SharedMemory, Address::Unix(path)) => Ok(Endpoint::shared_memory(path)),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

pub(super) fn connect(
    transport: BaselineTransport,
    spin: StreamSpin,
    address: &Address,
    sizes: MessageSizes,
    patience: Duration,
) -> io::Result<Box<dyn Stream>> {
    let stream = net_transport(transport).connect(&endpoint(transport, address)?, Some(clock::now() + patience))?;
    stream.set_coarse_timeouts(patience, patience)?;
    stream.set_spin_policy(policy(spin));
    send_all(&*stream, &sizes.preamble())?;
    Ok(stream)
}

pub(super) struct Acceptor {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(super) fn serve(transport: BaselineTransport, spin: StreamSpin) -> io::Result<(Acceptor, BaselineAddress)> {
    let wanted = match transport {
        BaselineTransport::Tcp => Endpoint::tcp("127.0.0.1", 0),
        BaselineTransport::Unix => Endpoint::unix(super::unused_path()),
        BaselineTransport::SharedMemory => Endpoint::shared_memory(super::unused_path()),
    };
    let listener = net_transport(transport).listen(&wanted)?;
    let socket = match listener.local_endpoint() {
        Endpoint::Tcp { port, .. } => Address::Inet((std::net::Ipv4Addr::LOCALHOST, *port).into()),
        Endpoint::Unix { path } | Endpoint::SharedMemory { path } => Address::Unix(path.clone()),
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    let is_over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&is_over);
    let thread = ThreadBuilder::new().name("floor/accept").spawn(move || accept(&*listener, spin, &stop))?;
    let address = BaselineAddress { socket, medium: Medium::Stream(transport, spin) };
    Ok((Acceptor { is_over, thread: Some(thread) }, address))
}

fn accept(listener: &dyn Listener, spin: StreamSpin, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        if !matches!(poll::wait_readable(listener.readiness_descriptor(), Some(clock::now() + STOP_INTERVAL)), Ok(true))
        {
            continue;
        }
        let Ok(stream) = listener.accept() else { continue };
        stream.set_spin_policy(policy(spin));
        drop(ThreadBuilder::new().name("floor/serve").spawn(move || echo(&*stream)));
    }
}

fn echo(stream: &dyn Stream) {
    let mut preamble = [0; 16];
    if fill(stream, &mut preamble).is_err() {
        return;
    }
    let Some(sizes) = read_preamble(&preamble).filter(|sizes| sizes.reply > 0) else { return };
    let (mut request, reply) = (vec![0; sizes.request], vec![0; sizes.reply]);
    while fill(stream, &mut request).is_ok() && send_all(stream, &reply).is_ok() {}
}

#[inline]
pub(super) fn fill(stream: &dyn Stream, buffer: &mut [u8]) -> io::Result<()> {
    let mut have = 0;
    while have < buffer.len() {
        match stream.recv(&mut buffer[have..], WaitLimit::Block)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => have += count,
        }
    }
    Ok(())
}

#[inline]
pub(super) fn send_all(stream: &dyn Stream, octets: &[u8]) -> io::Result<()> {
    let mut sent = 0;
    while sent < octets.len() {
        sent += stream.send(&octets[sent..], WaitLimit::Block)?;
    }
    Ok(())
}
