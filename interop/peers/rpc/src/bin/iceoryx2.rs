//! iceoryx2's requests and responses.
//!
//! Both sides poll, or with `CORELANE_ICEORYX2_EVENTS=1` sleep until an event. A polling server
//! polls from the line `poll` of its standard input to the line `rest`, so that it does not take
//! processor time from the other programs of a benchmark.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use corelane_rpc_peers::{Calls, Failure, checked, measure_as_told, reference, serve_and_hear};
use iceoryx2::node::Node;
use iceoryx2::port::client::Client as Requests;
use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::server::Server;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::request_response::PortFactory;

type Octets = PortFactory<ipc::Service, [u8], (), [u8], ()>;

/// Events in one direction.
struct Events {
    notifier: Notifier<ipc::Service>,
    listener: Listener<ipc::Service>,
}

impl Events {
    /// Opens the events of a side, which listens to `own` and notifies `other`. Returns `None` if
    /// the environment variable `CORELANE_ICEORYX2_EVENTS` is unset.
    fn open(node: &Node<ipc::Service>, own: &str, other: &str) -> Result<Option<Events>, Failure> {
        if std::env::var_os("CORELANE_ICEORYX2_EVENTS").is_none() {
            return Ok(None);
        }
        let event = |name: &str| -> Result<_, Failure> {
            Ok(node.service_builder(&name.try_into().map_err(text)?).event().open_or_create().map_err(text)?)
        };
        Ok(Some(Events {
            listener: event(own)?.listener_builder().create().map_err(text)?,
            notifier: event(other)?.notifier_builder().create().map_err(text)?,
        }))
    }
}

fn text(error: impl std::fmt::Debug) -> Failure {
    format!("{error:?}").into()
}

fn octets(node: &Node<ipc::Service>, name: &str) -> Result<Octets, Failure> {
    let builder = node.service_builder(&name.try_into().map_err(text)?);
    builder.request_response::<[u8], [u8]>().open_or_create().map_err(text)
}

fn event_names(name: &str) -> [String; 2] {
    [format!("{name}/requests"), format!("{name}/responses")]
}

struct Client {
    requests: Requests<ipc::Service, [u8], (), [u8], ()>,
    events: Option<Events>,
}

impl Client {
    fn ask<R>(&self, sent: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<R, Failure> {
        let request = self.requests.loan_slice_uninit(sent.len()).map_err(text)?;
        let pending = request.write_from_slice(sent).send().map_err(text)?;
        if let Some(events) = &self.events {
            events.notifier.notify().map_err(text)?;
        }
        loop {
            if let Some(response) = pending.receive().map_err(text)? {
                return Ok(read(response.payload()));
            }
            match &self.events {
                Some(events) => drop(events.listener.blocking_wait(|_| {}).map_err(text)?),
                None => std::hint::spin_loop(),
            }
        }
    }
}

impl Calls for Client {
    async fn octet(&mut self, value: u8) -> Result<u8, Failure> {
        self.ask(&[value], |reply| reply.first().copied())?.ok_or_else(|| "the reply is empty".into())
    }

    async fn octets(&mut self, sent: &[u8], whole: bool) -> Result<(usize, Option<u8>), Failure> {
        self.ask(sent, |reply| checked(sent, reply, whole))?
    }
}

/// Length in octets of the largest slice before the memory grows.
const SLICE: usize = 1 << 20;

/// Interval at which a sleeping server looks whether it is to end.
const END_INTERVAL: Duration = Duration::from_millis(100);

const REST: u8 = 0;
const POLL: u8 = 1;
const END: u8 = 2;

fn serve(
    server: &Server<ipc::Service, [u8], (), [u8], ()>,
    events: Option<&Events>,
    state: &AtomicU8,
) -> Result<(), Failure> {
    loop {
        match state.load(Ordering::Relaxed) {
            END => return Ok(()),
            REST if events.is_none() => {
                std::thread::park();
                continue;
            }
            _ => {}
        }
        while let Some(request) = server.receive().map_err(text)? {
            let response = request.loan_slice_uninit(request.payload().len()).map_err(text)?;
            response.write_from_slice(request.payload()).send().map_err(text)?;
            if let Some(events) = events {
                events.notifier.notify().map_err(text)?;
            }
        }
        match events {
            Some(events) => drop(events.listener.timed_wait(|_| {}, END_INTERVAL).map_err(text)?),
            None => std::hint::spin_loop(),
        }
    }
}

fn main() -> Result<(), Failure> {
    set_log_level(LogLevel::Error);
    let node = NodeBuilder::new().create::<ipc::Service>().map_err(text)?;
    if let Some(name) = reference()? {
        let [requests, responses] = event_names(&name);
        let events = Events::open(&node, &responses, &requests)?;
        let service = octets(&node, &name)?;
        let builder = service.client_builder().initial_max_slice_len(SLICE);
        let requests = builder.allocation_strategy(AllocationStrategy::PowerOfTwo).create().map_err(text)?;
        return pollster::block_on(measure_as_told(&mut Client { requests, events }));
    }
    let name = format!("corelane-bench-{}", std::process::id());
    let state = AtomicU8::new(REST);
    let [requests, responses] = event_names(&name);
    std::thread::scope(|scope| {
        let (ready, is_ready) = std::sync::mpsc::channel();
        let serving = scope.spawn(|| {
            let events = Events::open(&node, &requests, &responses)?;
            let service = octets(&node, &name)?;
            let builder = service.server_builder().initial_max_slice_len(SLICE);
            let server = builder.allocation_strategy(AllocationStrategy::PowerOfTwo).create().map_err(text)?;
            drop(ready);
            serve(&server, events.as_ref(), &state)
        });
        let _: Result<(), _> = is_ready.recv();
        let change = |to| {
            state.store(to, Ordering::Relaxed);
            serving.thread().unpark();
        };
        let ended = serve_and_hear(&name, |line| change(if line == "poll" { POLL } else { REST }));
        change(END);
        serving.join().map_err(|_| "the server's thread panicked")??;
        ended
    })
}
