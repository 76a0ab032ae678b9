//! The client of the running request, for its quotas.

use std::cell::RefCell;

use corelane::{Interceptor, Peer, RequestInfo, RequestOutcome, RequestServiceContexts, SystemException};

use super::books::ClientName;

/// The name of all clients that cannot be told apart.
const UNKNOWN: &str = "unknown";

thread_local! {
    static CLIENT: RefCell<Option<ClientName>> = const { RefCell::new(None) };
}

/// Tells [`Cores`](super::Cores) which client sends a request:
/// `Orb::builder().interceptor(ClientInterceptor)`.
///
/// All connections from one address count as one client, and so do all processes of one user over a
/// Unix socket or shared memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientInterceptor;

impl Interceptor for ClientInterceptor {
    fn receive_request(
        &self,
        request: &RequestInfo<'_>,
        _: &RequestServiceContexts<'_>,
    ) -> Result<(), SystemException> {
        CLIENT.set(Some(name(request.peer())));
        Ok(())
    }

    fn send_reply(&self, _: &RequestInfo<'_>, _: &RequestOutcome<'_>) {
        CLIENT.set(None);
    }
}

fn name(peer: &Peer) -> ClientName {
    ClientName(match peer {
        Peer::Ip(address) => format!("address {}", address.ip().to_canonical()).into(),
        Peer::Process { uid, .. } => format!("user {uid}").into(),
        _ => UNKNOWN.into(),
    })
}

/// Returns the client of the request that the calling thread serves. All clients have one name in an
/// ORB without [`ClientInterceptor`].
pub(super) fn current() -> ClientName {
    CLIENT.with_borrow(Clone::clone).unwrap_or_else(|| ClientName(UNKNOWN.into()))
}
