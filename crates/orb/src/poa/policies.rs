//! The seven policies of every POA and their valid combinations (CORBA 3.0.3, sections 11.2.3 and
//! 11.3.8).

/// The threads that run requests of the POA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Threading {
    /// Any thread of the pool. Several requests may run at the same time.
    #[default]
    OrbControlled,
    /// Any thread of the pool, but only one request at a time over all objects of the POA.
    SingleThread,
    /// Only the thread that runs [`Orb::run`](crate::Orb::run).
    MainThread,
}

/// The lifetime of the POA's references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Lifespan {
    /// References become invalid when the POA ends.
    #[default]
    Transient,
    /// References stay valid for a POA of the same name in a later process at the same address.
    Persistent,
}

/// The number of objects that one servant may incarnate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IdUniqueness {
    /// One servant incarnates one object.
    #[default]
    Unique,
    /// One servant incarnates any number of objects.
    Multiple,
}

/// The source of object ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IdAssignment {
    /// The application chooses ids.
    User,
    /// The POA makes ids.
    #[default]
    System,
}

/// The way in which a servant that is used as a reference is activated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ImplicitActivation {
    /// The use itself activates the servant.
    Implicit,
    /// The application must activate the servant explicitly.
    #[default]
    Explicit,
}

/// The policy that says if the POA keeps a map of active servants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ServantRetention {
    /// The POA keeps active servants in its active object map.
    #[default]
    Retain,
    /// The POA keeps no map. Every request asks the default servant or the servant locator.
    NonRetain,
}

/// The treatment of requests for objects that are not in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RequestProcessing {
    /// The request is refused with OBJECT_NOT_EXIST.
    #[default]
    ActiveObjectMapOnly,
    /// The default servant serves the request.
    DefaultServant,
    /// The servant manager is asked for a servant.
    ServantManager,
}

/// The policies of a POA. [`PoaPolicies::default`] has the default values of `create_POA`.
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
    /// The activation of servants that are used as references: ImplicitActivationPolicy (20).
    pub implicit_activation: ImplicitActivation,
    /// The map of active servants: ServantRetentionPolicy (21).
    pub servant_retention: ServantRetention,
    /// The treatment of requests for objects that are not in the map: RequestProcessingPolicy (22).
    pub request_processing: RequestProcessing,
    /// The treatment of an object whose servant panicked.
    pub on_panic: OnPanic,
    /// Slot hints in persistent keys.
    pub key_hints: KeyHints,
}

/// Slot hints in the references of persistent POAs. This policy has no effect on transient POAs,
/// whose keys always have a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum KeyHints {
    /// No hint. The key of an object is equal in every run, and the server finds it by hashing.
    #[default]
    None,
    /// References of active objects carry the object's slot, in which the server looks first
    /// (active demultiplexing). If another object has the slot, the wrong hint costs one
    /// comparison. References stay valid from run to run. Two references to one object may differ,
    /// and then do not count as equivalent.
    Slots,
}

/// The treatment of an object whose servant panicked. In any case the caller gets UNKNOWN,
/// COMPLETED_MAYBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnPanic {
    /// The object stays active.
    #[default]
    Keep,
    /// The object is deactivated.
    Deactivate,
}

/// The index of a policy in [`PoaPolicies::LIST`], which
/// [`PoaError::InvalidPolicy`](super::PoaError::InvalidPolicy) carries.
pub type PolicyIndex = u16;

impl PoaPolicies {
    /// The policies of the root POA.
    pub const ROOT: PoaPolicies = PoaPolicies {
        threading: Threading::OrbControlled,
        lifespan: Lifespan::Transient,
        id_uniqueness: IdUniqueness::Unique,
        id_assignment: IdAssignment::System,
        implicit_activation: ImplicitActivation::Implicit,
        servant_retention: ServantRetention::Retain,
        request_processing: RequestProcessing::ActiveObjectMapOnly,
        on_panic: OnPanic::Keep,
        key_hints: KeyHints::None,
    };

    /// Policy names, in the order of the policy types. The position of a name is the index in
    /// InvalidPolicy.
    pub const LIST: [&'static str; 13] = [
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
    /// The index into [`PoaPolicies::LIST`] of the policy that conflicts with the others.
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

    /// Checks the rules of CORBA 3.0.3, section 11.3.8, over all combinations of the five policies
    /// in these rules.
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
        // With RETAIN: 6 with only the map, 6 with a servant manager, 3 with a default servant.
        // With NON_RETAIN: 2 and 4. The numbers are in poa.md.
        assert_eq!(legal, 6 + 6 + 3 + 2 + 4);
    }

    #[test]
    fn root_policies_are_valid() {
        assert_eq!(PoaPolicies::ROOT.check(), Ok(()));
    }
}
