//! The seven standard policies of a POA and their valid combinations (CORBA 3.0.3, sections 11.2.3
//! and 11.3.8), and two policies of Corelane.

/// The threads that run requests of a POA (ThreadPolicy).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Threading {
    /// ORB_CTRL_MODEL: any thread of the pool. Several requests may run at the same time.
    #[default]
    OrbControlled,
    /// SINGLE_THREAD_MODEL: any thread of the pool, but only one request of the POA runs at a time.
    SingleThread,
    /// MAIN_THREAD_MODEL: only the main thread, which runs [`Orb::run`](crate::Orb::run) or
    /// [`Orb::perform_work`](crate::Orb::perform_work).
    MainThread,
}

/// The lifetime of a POA's references (LifespanPolicy).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Lifespan {
    /// References become invalid when the POA is destroyed or its process ends.
    #[default]
    Transient,
    /// References stay valid: a POA of the same name in a later process at the same address serves
    /// them.
    Persistent,
}

/// The number of objects that one servant may incarnate (IdUniquenessPolicy).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IdUniqueness {
    /// A servant incarnates at most one object.
    #[default]
    Unique,
    /// A servant may incarnate any number of objects.
    Multiple,
}

/// The source of object ids (IdAssignmentPolicy).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IdAssignment {
    /// The application chooses ids.
    User,
    /// The POA makes ids.
    #[default]
    System,
}

/// The activation of an inactive servant whose reference or id the application requests
/// (ImplicitActivationPolicy).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ImplicitActivation {
    /// The POA activates the servant when the application requests its reference or id.
    Implicit,
    /// The application must activate the servant explicitly.
    #[default]
    Explicit,
}

/// The retention of active servants in the active object map (ServantRetentionPolicy).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ServantRetention {
    /// The POA keeps active servants in its active object map.
    #[default]
    Retain,
    /// The POA keeps no map. The default servant or the servant locator serves every request.
    NonRetain,
}

/// The treatment of requests for objects that are not in the active object map
/// (RequestProcessingPolicy).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RequestProcessing {
    /// The POA refuses the request with OBJECT_NOT_EXIST.
    #[default]
    ActiveObjectMapOnly,
    /// The default servant serves the request.
    DefaultServant,
    /// The servant manager supplies a servant.
    ServantManager,
}

/// The policies of a POA. The number after the name of a standard policy is the value of its policy
/// type. [`PoaPolicies::default`] has the default values of `create_POA`.
///
/// # Examples
/// ```
/// use corelane::poa::{IdAssignment, Lifespan, PoaPolicies};
/// let policies = PoaPolicies { lifespan: Lifespan::Persistent, id_assignment: IdAssignment::User, ..PoaPolicies::default() };
/// assert!(policies.check().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PoaPolicies {
    /// The threads that run requests: ThreadPolicy (16).
    pub threading: Threading,
    /// The lifetime of references: LifespanPolicy (17).
    pub lifespan: Lifespan,
    /// The number of objects that a servant may incarnate: IdUniquenessPolicy (18).
    pub id_uniqueness: IdUniqueness,
    /// The source of object ids: IdAssignmentPolicy (19).
    pub id_assignment: IdAssignment,
    /// The activation of inactive servants whose reference or id the application requests:
    /// ImplicitActivationPolicy (20).
    pub implicit_activation: ImplicitActivation,
    /// The map of active servants: ServantRetentionPolicy (21).
    pub servant_retention: ServantRetention,
    /// The treatment of requests for objects that are not in the map: RequestProcessingPolicy (22).
    pub request_processing: RequestProcessing,
    /// The treatment of an object whose servant panicked.
    pub servant_panic_action: ServantPanicAction,
    /// Slot hints in the references of a persistent POA.
    pub object_key_hints: ObjectKeyHints,
}

/// Slot hints in the references of persistent POAs. The policy has no effect on transient POAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ObjectKeyHints {
    /// References have no hints.
    #[default]
    None,
    /// References of active objects contain the object's slot, in which the server looks first
    /// (active demultiplexing). If another object has the slot, the server compares one key in
    /// vain, then finds the object by hashing. Two references to one object may have different
    /// hints, and then are not equivalent.
    Slots,
}

/// The treatment of an object whose servant panicked. In both cases the client gets UNKNOWN,
/// COMPLETED_MAYBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ServantPanicAction {
    /// The object stays active.
    #[default]
    KeepActive,
    /// The object is deactivated.
    Deactivate,
}

/// The index of a policy in [`PoaPolicies::POLICY_NAMES`], as
/// [`PoaError::InvalidPolicy`](super::PoaError::InvalidPolicy) reports it.
pub type PolicyIndex = u16;

impl PoaPolicies {
    /// The policies of the root POA.
    pub const ROOT_POA: PoaPolicies = PoaPolicies {
        threading: Threading::OrbControlled,
        lifespan: Lifespan::Transient,
        id_uniqueness: IdUniqueness::Unique,
        id_assignment: IdAssignment::System,
        implicit_activation: ImplicitActivation::Implicit,
        servant_retention: ServantRetention::Retain,
        request_processing: RequestProcessing::ActiveObjectMapOnly,
        servant_panic_action: ServantPanicAction::KeepActive,
        object_key_hints: ObjectKeyHints::None,
    };

    /// The names of the policies of CORBA and Real-time CORBA, in the order of the policy types.
    pub const POLICY_NAMES: [&'static str; 13] = [
        "ThreadPolicy",
        "LifespanPolicy",
        "IdUniquenessPolicy",
        "IdAssignmentPolicy",
        "ImplicitActivationPolicy",
        "ServantRetentionPolicy",
        "RequestProcessingPolicy",
        "PriorityModelPolicy",
        "ThreadpoolPolicy",
        "ServerProtocolPolicy",
        "ClientProtocolPolicy",
        "PrivateConnectionPolicy",
        "PriorityBandedConnectionPolicy",
    ];

    /// Checks that the policies are a valid combination.
    ///
    /// # Errors
    /// The index into [`PoaPolicies::POLICY_NAMES`] of a policy that conflicts with another policy.
    pub fn check(&self) -> Result<(), PolicyIndex> {
        let retains = self.servant_retention == ServantRetention::Retain;
        match self.request_processing {
            RequestProcessing::ActiveObjectMapOnly if !retains => return Err(6),
            RequestProcessing::DefaultServant if self.id_uniqueness != IdUniqueness::Multiple => return Err(6),
            _ => {}
        }
        let implicit = self.implicit_activation == ImplicitActivation::Implicit;
        if implicit && (self.id_assignment != IdAssignment::System || !retains) {
            return Err(4);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_check_matches_the_rules_for_every_combination() {
        let mut legal = 0;
        for uniqueness in [IdUniqueness::Unique, IdUniqueness::Multiple] {
            for assignment in [IdAssignment::User, IdAssignment::System] {
                for implicit in [ImplicitActivation::Implicit, ImplicitActivation::Explicit] {
                    for retention in [ServantRetention::Retain, ServantRetention::NonRetain] {
                        for processing in [
                            RequestProcessing::ActiveObjectMapOnly,
                            RequestProcessing::DefaultServant,
                            RequestProcessing::ServantManager,
                        ] {
                            let policies = PoaPolicies {
                                id_uniqueness: uniqueness,
                                id_assignment: assignment,
                                implicit_activation: implicit,
                                servant_retention: retention,
                                request_processing: processing,
                                ..PoaPolicies::default()
                            };
                            let retains = retention == ServantRetention::Retain;
                            let expected = (retains || processing != RequestProcessing::ActiveObjectMapOnly)
                                && (processing != RequestProcessing::DefaultServant
                                    || uniqueness == IdUniqueness::Multiple)
                                && (implicit == ImplicitActivation::Explicit
                                    || (assignment == IdAssignment::System && retains));
                            assert_eq!(policies.check().is_ok(), expected, "{policies:?}");
                            legal += usize::from(expected);
                        }
                    }
                }
            }
        }
        // docs/poa.md states these numbers.
        assert_eq!(legal, 6 + 6 + 3 + 2 + 4);
    }

    #[test]
    fn root_policies_are_valid() {
        assert_eq!(PoaPolicies::ROOT_POA.check(), Ok(()));
    }
}
