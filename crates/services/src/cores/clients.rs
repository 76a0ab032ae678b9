//! Finds the client of the running request, to which the quotas apply.

use std::cell::RefCell;

use corelane::{Interceptor, Peer, RequestInfo, RequestOutcome, RequestServiceContexts, SystemException};

use super::registry::ClientName;

const UNKNOWN: &str = "unknown";

thread_local! {
    static CLIENT: RefCell<Option<ClientName>> = const { RefCell::new(None) };
}

/// Identifies the client of each request for [`AdmissionConfig`](super::AdmissionConfig):
/// `Orb::builder().interceptor(ClientIdentityInterceptor)`.
///
/// All connections from one address count as one client, and so do all processes of one user over a
/// Unix socket or shared memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientIdentityInterceptor;

impl Interceptor for ClientIdentityInterceptor {
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

/// Returns the client of the request that the calling thread serves. In an ORB without
/// [`ClientIdentityInterceptor`], all clients have one name.
pub(super) fn current() -> ClientName {
    CLIENT.with_borrow(Clone::clone).unwrap_or_else(|| ClientName(UNKNOWN.into()))
}
