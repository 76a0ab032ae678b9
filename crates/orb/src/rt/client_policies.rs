//! Real-time policies of clients, and the policies in the profiles of references.

use corelane_net::{Endpoint, IoClass, SpinPolicy};
use corelane_sched::{PriorityBands, PriorityModel, selection};

use super::protocol::{Protocol, SocketSettings};
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};

/// Real-time policies of a client. They are set for a reference
/// ([`ObjectRef::with_rt_policies`](crate::ObjectRef::with_rt_policies)), a thread
/// ([`with_client_policies`](super::with_client_policies)) or the ORB
/// ([`RtConfig::client_policies`](super::RtConfig::client_policies)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RtClientPolicies {
    /// PriorityBandedConnectionPolicy (45): the lowest and the highest CORBA priority of each band.
    /// Calls with priorities of one band may share connections. Calls with priorities of different
    /// bands never share connections.
    pub priority_bands: Option<Vec<(i16, i16)>>,
    /// PrivateConnectionPolicy (44): if true, a reference and its copies share no connections with
    /// other references.
    pub private_connection: bool,
    /// ClientProtocolPolicy (43): the permitted protocols with their socket properties, the most
    /// preferred first. If this list is empty, the list in the reference applies. If both lists are
    /// empty, all protocols are permitted. If neither is empty, calls raise INV_POLICY.
    pub client_protocols: Vec<Protocol>,
    /// The service class of the packets that the connections receive. Calls with different classes
    /// share no connections. A transport without such classes ignores the policy. `None` means the
    /// class that a wider scope sets, or [`IoClass::BestEffort`].
    pub io_class: Option<IoClass>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProfilePolicies {
    pub(crate) model: Option<(PriorityModel, i16)>,
    pub(crate) bands: Vec<(i16, i16)>,
    pub(crate) protocols: Vec<Protocol>,
}

/// The real-time policies of one scope: a reference, a thread or the ORB. An empty list means that
/// the policy is not set.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientPolicies {
    pub(crate) bands: Vec<(i16, i16)>,
    pub(crate) private: bool,
    pub(crate) protocols: Vec<Protocol>,
    /// The spin policy of a reference. References with different spin policies share no
    /// connections.
    pub(crate) spin: Option<SpinPolicy>,
    pub(crate) io: Option<IoClass>,
}

impl ClientPolicies {
    /// Fills the policies that `self` does not set from `wider`. Connections are private if `self`
    /// or `wider` asks for private connections.
    pub(crate) fn with_defaults_from(self, wider: &ClientPolicies) -> Self {
        let or = |own: Vec<_>, wider: &Vec<_>| if own.is_empty() { wider.clone() } else { own };
        ClientPolicies {
            bands: if self.bands.is_empty() { wider.bands.clone() } else { self.bands },
            private: self.private || wider.private,
            protocols: or(self.protocols, &wider.protocols),
            spin: self.spin.or(wider.spin),
            io: self.io.or(wider.io),
        }
    }
}

impl RtClientPolicies {
    pub(crate) fn check(&self) -> Result<ClientPolicies, SystemException> {
        let bands = self.priority_bands.clone();
        if let Some(bands) = &bands {
            PriorityBands::new(bands.iter().copied()).map_err(|error| {
                SystemException::new(Kind::BadParam, 0, Completion::No).with_message(error.to_string())
            })?;
        }
        if !self.client_protocols.iter().all(|protocol| protocol.is_valid()) {
            let exception = SystemException::new(Kind::BadParam, 0, Completion::No);
            return Err(exception.with_message("the size of a buffer must not be negative"));
        }
        let (bands, protocols) = (bands.unwrap_or_default(), self.client_protocols.clone());
        Ok(ClientPolicies { bands, private: self.private_connection, protocols, spin: None, io: self.io_class })
    }
}

/// Returns the protocols that both sides permit. An empty result permits all protocols; `None` is a
/// conflict of policies.
pub(crate) fn usable_protocols<'p>(client: &'p ClientPolicies, profile: &'p ProfilePolicies) -> Option<&'p [Protocol]> {
    selection::reconcile_policy(&client.protocols, &profile.protocols).ok()
}

/// Returns the place of the endpoint's protocol in the list, and its socket settings; `None` if the
/// list does not permit the protocol. An empty list permits all protocols.
pub(crate) fn protocol_rank(protocols: &[Protocol], endpoint: &Endpoint) -> Option<(usize, SocketSettings)> {
    if protocols.is_empty() {
        return Some((0, SocketSettings::default()));
    }
    let place = protocols.iter().position(|protocol| protocol.serves(endpoint))?;
    protocols.get(place).map(|protocol| (place, protocol.socket_settings()))
}
