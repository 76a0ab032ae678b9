//! The command `corelane events gateway`, which passes the events of one channel to another.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

use corelane::{Dispatch, ObjectRef, Orb, PoolConfig};
use corelane_services::events::{Gateway, GatewayCounts, GatewayStatus};
use corelane_sys::clock::Monotonic;
use corelane_sys::{poll, signal};
use serde_json::{Value as Json, json};

use super::channel::{channel_object, message};
use super::options::EventsArguments;
use crate::serving::ServerOptions;
use crate::text::{json_line, printable};

/// Address of the gateway, which only programs on this machine can reach.
const DEFAULT_LISTEN: &str = "tcp:127.0.0.1:0";
/// Time from one check of the gateways' states to the next.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Passes events until a termination signal, or until a gateway is refused. Prints the state of
/// each gateway after each change, and its counts at each interval and, unless a gateway was
/// refused, at the end.
pub(super) fn run(arguments: &EventsArguments, out: &mut dyn Write) -> Result<(), String> {
    let termination = signal::termination().map_err(message)?;
    // One thread keeps the order of the events. This thread does not wait for a channel, because
    // the events go to a buffer.
    let pool = PoolConfig::default().name("events").dispatch(Dispatch::Reactive);
    let options = ServerOptions {
        orb_config: arguments.orb_config.as_deref(),
        listen: &arguments.listen,
        publish: &arguments.publish,
        default_listen: DEFAULT_LISTEN,
    };
    let orb = options.builder(pool)?.build().map_err(message)?;
    let [from, to] = [&arguments.channel, &arguments.to].map(|word| (word.as_str(), channel_object(&orb, word)));
    let ends = [(from.0, from.1?), (to.0, to.1?)];
    let mut watched = vec![Watched::start(&orb, arguments, &ends[0], &ends[1])?];
    if arguments.is_both {
        watched.push(Watched::start(&orb, arguments, &ends[1], &ends[0])?);
    }
    let print = |out: &mut dyn Write, text: String| {
        // Ignores an error: the gateway continues if the reader has closed the pipe.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    };
    let mut counts_at = arguments.interval.map(|interval| Monotonic::now() + interval);
    let mut refusal = None;
    while refusal.is_none() {
        for gateway in &mut watched {
            let status = gateway.gateway.status();
            if gateway.has_changed(&status) {
                print(out, gateway.state_line(&status, arguments.is_json));
            }
            if status.is_refused {
                refusal = status.problem;
            }
        }
        if counts_at.is_some_and(Monotonic::is_past) {
            counts_at = arguments.interval.map(|interval| Monotonic::now() + interval);
            watched.iter().for_each(|it| print(out, it.counts_line(arguments.is_json)));
        }
        let look_at = Monotonic::now() + LOOK_INTERVAL;
        if refusal.is_none() {
            poll::wait_readable_any([termination.as_fd()], Some(look_at)).map_err(message)?;
        }
        if termination.is_requested() {
            break;
        }
    }
    watched.iter().for_each(|it| it.gateway.stop());
    if refusal.is_none() {
        watched.iter().for_each(|it| print(out, it.counts_line(arguments.is_json)));
    }
    orb.shutdown(true).map_err(message)?;
    refusal.map_or(Ok(()), Err)
}

struct Watched<'w> {
    gateway: Gateway,
    from: &'w str,
    to: &'w str,
    shown: Option<(bool, Option<String>)>,
}

impl<'w> Watched<'w> {
    fn start(
        orb: &Orb,
        arguments: &EventsArguments,
        from: &(&'w str, ObjectRef),
        to: &(&'w str, ObjectRef),
    ) -> Result<Self, String> {
        let builder = Gateway::builder().lanes(arguments.lanes.iter().cloned());
        let gateway = builder.serve(orb, &from.1, &to.1).map_err(message)?;
        Ok(Self { gateway, from: from.0, to: to.0, shown: None })
    }

    fn has_changed(&mut self, status: &GatewayStatus) -> bool {
        let state = (status.is_connected, status.problem.clone());
        // The first state is not printed if the gateway is not connected yet and has no problem.
        let is_new = self.shown.as_ref() != Some(&state) && (self.shown.is_some() || state != (false, None));
        if is_new {
            self.shown = Some(state);
        }
        is_new
    }

    fn state_line(&self, status: &GatewayStatus, is_json: bool) -> String {
        let state = if status.is_connected { "connected" } else { "not connected" };
        if is_json {
            let mut shown = self.json(status);
            shown["problem"] = status.problem.as_deref().map_or(Json::Null, Json::from);
            return json_line(&shown);
        }
        let problem = status.problem.iter().map(|problem| format!(": {}", printable(problem))).collect::<String>();
        format!("{} -> {}: {state}{problem}\n", printable(self.from), printable(self.to))
    }

    fn counts_line(&self, is_json: bool) -> String {
        let status = self.gateway.status();
        if is_json {
            return json_line(&self.json(&status));
        }
        let GatewayCounts { received, forwarded, duplicates, loops_stopped: returned, ttl_expired: ttl_ended, .. } =
            status.counts;
        let GatewayCounts {
            dropped_buffer_full: dropped_full,
            dropped_by_destination: dropped_refused,
            waiting,
            reconnects,
            ..
        } = status.counts;
        format!(
            "{} -> {}: received {received}, forwarded {forwarded}, duplicates {duplicates}, returned {returned}, \
             ttl ended {ttl_ended}, dropped {}, waiting {waiting}, reconnects {reconnects}\n",
            printable(self.from),
            printable(self.to),
            dropped_full + dropped_refused
        )
    }

    fn json(&self, status: &GatewayStatus) -> Json {
        let counts = &status.counts;
        json!({
            "schema": 1,
            "from": self.from,
            "to": self.to,
            "is_connected": status.is_connected,
            "received": counts.received,
            "forwarded": counts.forwarded,
            "duplicates": counts.duplicates,
            "returned": counts.loops_stopped,
            "ttl_ended": counts.ttl_expired,
            "dropped": { "full": counts.dropped_buffer_full, "refused": counts.dropped_by_destination },
            "waiting": counts.waiting,
            "reconnects": counts.reconnects,
        })
    }
}
