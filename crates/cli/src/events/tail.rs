//! The command `corelane events tail`, which prints the events of a channel as lines.

use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Arc;

use corelane::{Any, Dispatch, Orb, PoolConfig, SystemException};
use corelane_services::events::cos_event_comm::{self as cos, push_consumer::PushError};
use corelane_services::events::rtec_event_channel_admin::{ConsumerQOS, Dependency};
use corelane_services::events::rtec_event_comm::{Event, PushConsumer, PushConsumerRef};
use corelane_services::events::{Designator, EventFilter, EventHeader, EventNames, FilterLimits};
use corelane_sys::eventfd::EventFd;
use corelane_sys::lock::{Condvar, LockScope, Mutex};
use corelane_sys::{poll, signal};
use serde_json::{Value as Json, json};

use super::channel::{Channel, channel, message, typed};
use super::options::EventsArguments;
use crate::json::{any_to_json, hexadecimal};
use crate::text::{json_line, printable};

/// Maximum number of events that wait to be printed. Further pushes wait.
const MAX_WAITING: usize = 1_000;
/// Address of the consumer, which only programs on this machine can reach.
const DEFAULT_LISTEN: &str = "tcp:127.0.0.1:0";

/// An event to print: an event of TAO's service, or the value of an event of CORBA's Event Service.
enum Line {
    Typed(Event),
    Value(Any),
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<Line>,
    /// True if the channel has disconnected the consumer, or if the command ends.
    is_ended: bool,
}

struct Printed {
    waiting: Mutex<Waiting>,
    /// Notified when `waiting` gets shorter.
    taken: Condvar,
    /// Readable when `waiting` has changed.
    changed: EventFd,
}

impl Printed {
    fn add(&self, line: Line) {
        let mut waiting = self.waiting.lock();
        while waiting.lines.len() >= MAX_WAITING && !waiting.is_ended {
            waiting = self.taken.wait(waiting);
        }
        waiting.lines.push_back(line);
        drop(waiting);
        self.changed.notify();
    }

    /// Ends the printing. Pushes no longer wait.
    fn end(&self) {
        self.waiting.lock().is_ended = true;
        self.taken.notify_all();
        self.changed.notify();
    }
}

struct Consumer(Arc<Printed>);

impl PushConsumer for Consumer {
    fn push(&self, data: &[Event]) -> Result<(), SystemException> {
        data.iter().for_each(|event| self.0.add(Line::Typed(event.clone())));
        Ok(())
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        self.0.end();
        Ok(())
    }
}

impl cos::PushConsumer for Consumer {
    fn push(&self, data: &Any) -> Result<(), PushError> {
        self.0.add(Line::Value(data.clone()));
        Ok(())
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        self.0.end();
        Ok(())
    }
}

/// Prints events until a termination signal, until `--count` events are printed, until the channel
/// ends, or until the reader closes the pipe.
pub(super) fn run(arguments: &EventsArguments, out: &mut dyn Write) -> Result<(), String> {
    let termination = signal::termination().map_err(message)?;
    let listen = arguments.listen.last().map_or(DEFAULT_LISTEN, String::as_str);
    // One thread keeps the order of the events.
    let pool = PoolConfig::default().dispatch(Dispatch::Reactive);
    let orb = Orb::builder().pool(pool).listen(listen).build().map_err(message)?;
    let printed = Arc::new(Printed {
        waiting: Mutex::new("printed events", LockScope::Orb, Waiting::default()),
        taken: Condvar::new(),
        changed: EventFd::new().map_err(message)?,
    });
    let disconnect = connect(&orb, arguments, &printed)?;
    let mut left = arguments.count;
    while left != Some(0) {
        let ready = poll::wait_readable_any([termination.as_fd(), printed.changed.as_fd()], None).map_err(message)?;
        printed.changed.take_notifications();
        let (lines, is_ended) = {
            let mut waiting = printed.waiting.lock();
            (std::mem::take(&mut waiting.lines), waiting.is_ended)
        };
        printed.taken.notify_all();
        for line in lines {
            if left == Some(0) {
                break;
            }
            left = left.map(|left| left - 1);
            let text = if arguments.is_json { json_line(&as_json(&line)) } else { as_text(&line) };
            // The reader may have closed the pipe, which ends the command.
            if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
                left = Some(0);
            }
        }
        if is_ended {
            return Err("the channel was destroyed".to_owned());
        }
        if ready[0] {
            break;
        }
    }
    printed.end();
    disconnect();
    Ok(())
}

fn connect(orb: &Orb, arguments: &EventsArguments, printed: &Arc<Printed>) -> Result<Box<dyn FnOnce()>, String> {
    let poa = orb.root_poa();
    poa.manager().activate().map_err(message)?;
    let consumer = Consumer(Arc::clone(printed));
    match channel(orb, &arguments.channel)? {
        Channel::Rtec(channel) => {
            let object = poa.activate(&<Consumer as PushConsumer>::servant(consumer)).map_err(message)?;
            let admin = channel.for_consumers().map_err(message)?.ok_or("the channel has no consumers")?;
            let proxy = admin.obtain_push_supplier().map_err(message)?.ok_or("the channel has no proxy")?;
            let qos = ConsumerQOS { dependencies: dependencies(arguments)?, is_gateway: false };
            let consumer = PushConsumerRef::unchecked_narrow(&object);
            proxy.connect_push_consumer(Some(&consumer), &qos).map_err(message)?;
            // Ignores an error: the channel may have ended.
            Ok(Box::new(move || drop(proxy.disconnect_push_supplier())))
        }
        Channel::Cos(channel) => {
            if !arguments.types.is_empty() || arguments.source.is_some() || arguments.filter.is_some() {
                return Err("the events of this channel have neither types nor sources".to_owned());
            }
            let object = poa.activate(&<Consumer as cos::PushConsumer>::servant(consumer)).map_err(message)?;
            let admin = channel.for_consumers().map_err(message)?.ok_or("the channel has no consumers")?;
            let proxy = admin.obtain_push_supplier().map_err(message)?.ok_or("the channel has no proxy")?;
            let consumer = cos::PushConsumerRef::unchecked_narrow(&object);
            proxy.connect_push_consumer(Some(&consumer)).map_err(message)?;
            Ok(Box::new(move || drop(proxy.disconnect_push_supplier())))
        }
    }
}

/// Returns the dependencies of the filter in `arguments`, or without a filter a disjunction of the
/// types.
fn dependencies(arguments: &EventsArguments) -> Result<Vec<Dependency>, String> {
    let dependency = |event| Dependency { event, rt_info: 0 };
    if let Some(expression) = &arguments.filter {
        let filter = EventFilter::parse(expression, &EventNames::new(), &FilterLimits::default());
        let set = filter.map_err(|error| format!("`--filter`: {error}"))?.dependencies();
        let event = |header: &EventHeader| {
            let mut event = typed(header.event_type.0, header.source.0);
            event.header.creation_time = header.creation_time;
            event
        };
        return Ok(set.headers().iter().map(event).map(dependency).collect());
    }
    let types = if arguments.types.is_empty() { &[0][..] } else { &arguments.types };
    let source = arguments.source.unwrap_or(0);
    let head = typed(Designator::Disjunction.event_type().0, i32::try_from(types.len()).unwrap_or(i32::MAX));
    let events = types.iter().map(|event_type| typed(*event_type, source));
    Ok(std::iter::once(head).chain(events).map(dependency).collect())
}

fn as_json(line: &Line) -> Json {
    match line {
        Line::Value(value) => json!({ "schema": 1, "value": any_to_json(value) }),
        Line::Typed(event) => event_json(event),
    }
}

pub(super) fn event_json(Event { header, data }: &Event) -> Json {
    json!({
        "schema": 1,
        "type": header.r#type,
        "source": header.source,
        "ttl": header.ttl,
        "created": header.creation_time,
        "received": header.ec_recv_time,
        "sent": header.ec_send_time,
        "payload": hexadecimal(&data.payload),
        "value": any_to_json(&data.any_value),
    })
}

fn as_text(line: &Line) -> String {
    let value = |value: &Any| printable(any_to_json(value).to_string().trim_end());
    match line {
        Line::Value(found) => format!("{}\n", value(found)),
        Line::Typed(Event { header, data }) => {
            let octets = data.payload.len();
            format!("type {} source {}: {octets} octets, {}\n", header.r#type, header.source, value(&data.any_value))
        }
    }
}
