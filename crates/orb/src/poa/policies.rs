//! The seven policies of every POA and which of them go together (CORBA 3.0.3, sections 11.2.3 and 11.3.8).

/// Which threads run requests of the POA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Threading {
    /// Any thread of the pool, several at a time.
    #[default]
    OrbControlled,
    /// One request at a time over all objects of the POA.
    SingleThread,
    /// The thread that runs [`Orb::run`](crate::Orb::run).
    MainThread,
}

/// Whether references outlive the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Lifespan {
    /// References die with the POA.
    #[default]
    Transient,
    /// References stay valid for a POA of the same name in a later process at the same address.
    Persistent,
}

/// Whether a servant may incarnate several objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IdUniqueness {
    /// One object for each servant.
    #[default]
    Unique,
    /// Any number of objects.
    Multiple,
}

/// Who makes object ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IdAssignment {
    /// The application.
    User,
    /// The POA.
    #[default]
    System,
}

/// Whether using a servant as a reference activates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ImplicitActivation {
    /// It does.
    Implicit,
    /// It must be activated explicitly.
    #[default]
    Explicit,
}

/// Whether the POA keeps active servants in a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ServantRetention {
    /// It does.
    #[default]
    Retain,
    /// Every request asks the default servant or the servant locator.
    NonRetain,
}

/// What happens to requests for objects that are not in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RequestProcessing {
    /// They are refused with OBJECT_NOT_EXIST.
    #[default]
    ActiveObjectMapOnly,
    /// The default servant gets them.
    DefaultServant,
    /// The servant manager is asked for a servant.
    ServantManager,
}

/// The policies of a POA; [`PoaPolicies::default`] is what `create_POA` uses for what is not given.
///
/// # Examples
/// ```
/// use corelane::poa::{IdAssignment, Lifespan, PoaPolicies};
/// let policies = PoaPolicies { lifespan: Lifespan::Persistent, id_assignment: IdAssignment::User, ..PoaPolicies::default() };
/// assert!(policies.check().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PoaPolicies {
    /// ThreadPolicy (16).
    pub threading: Threading,
    /// LifespanPolicy (17).
    pub lifespan: Lifespan,
    /// IdUniquenessPolicy (18).
    pub id_uniqueness: IdUniqueness,
    /// IdAssignmentPolicy (19).
    pub id_assignment: IdAssignment,
    /// ImplicitActivationPolicy (20).
    pub implicit_activation: ImplicitActivation,
    /// ServantRetentionPolicy (21).
    pub servant_retention: ServantRetention,
    /// RequestProcessingPolicy (22).
    pub request_processing: RequestProcessing,
    /// What a panicking servant does to its object.
    pub on_panic: OnPanic,
    /// What persistent keys say besides what the object is.
    pub key_hints: KeyHints,
}

/// Whether references of persistent POAs say where their object is in memory. No effect on transient ones, which always do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum KeyHints {
    /// They do not: the key of an object is the same in every run, and is found by hashing it.
    #[default]
    None,
    /// References of active objects carry the object's slot, where the server looks first (active demultiplexing). A slot that has
    /// become another object's costs one comparison, and references stay valid from run to run all the same; but two of them
    /// to one object may differ, and then count as not equivalent.
    Slots,
}

/// What happens to an object whose servant panicked (the caller gets UNKNOWN, COMPLETED_MAYBE in any case).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnPanic {
    /// It stays active.
    #[default]
    Keep,
    /// It is deactivated.
    Deactivate,
}

/// The place of a policy in the list of [`PoaPolicies::LIST`], as InvalidPolicy reports it.
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

    /// The order in which the indices of InvalidPolicy count, which is the order of the policy types.
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

    /// Whether the policies go together.
    ///
    /// # Errors
    /// The index into [`PoaPolicies::LIST`] of the policy that does not go with the others.
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

    /// The rules of CORBA 3.0.3, section 11.3.8, one by one, over all 2^6 combinations that matter.
    #[test]
    fn every_combination_is_judged_by_the_rules() {
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
        // The list of poa.md: 6 with AOM only, 6 with a manager, 3 with a default servant; NON_RETAIN: 2 and 4.
        assert_eq!(legal, 6 + 6 + 3 + 2 + 4);
    }

    #[test]
    fn the_root_policies_are_legal() {
        assert_eq!(PoaPolicies::ROOT.check(), Ok(()));
    }
}
