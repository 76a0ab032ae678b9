//! What a reference is bound to: usable profiles, each with its connections, and where the object has moved.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use corelane_sched::Priority;
use corelane_sys::lock::Scope;
use corelane_sys::published::Published;
use corelane_wire::giop::{self, AddressingMode};
use corelane_wire::ior::Ior;
use corelane_wire::{Cdr, CdrError, CodeSets, Encoder, Endian, Version};

use crate::client::bands::{Band, Bands};
use crate::exception::SystemException;
use crate::orb::Core;
use crate::poa::Home;
use crate::rt::client::{Asked, Chosen, Lanes, Said};

/// A reference's way to its object, shared by all copies of the reference.
#[derive(Debug)]
pub(crate) struct Binding {
    ior: Ior,
    original: OnceLock<Arc<Target>>,
    /// Where the object was forwarded to, until that fails.
    forwarded: Published<Option<Arc<Target>>>,
    /// Spares the look where nothing was forwarded.
    moved: AtomicBool,
    local: OnceLock<Option<Box<[u8]>>>,
    home: OnceLock<Home>,
    asked: Asked,
    /// What the reference itself asks for.
    own: Asked,
    /// By what the last call through it was answered.
    bound: Published<Option<Bound>>,
    /// Spares the look where that changes nothing: [`UNBOUND`], [`AT_FIRST`] or [`ELSEWHERE`].
    bound_at: AtomicU8,
}

/// The profile by which a reference is bound.
#[derive(Debug)]
struct Bound {
    said: Said,
    at: u8,
}

/// No call through the reference has been answered.
const UNBOUND: u8 = 0;
/// The first profile of the reference itself answers.
const AT_FIRST: u8 = 1;
/// Another one does.
const ELSEWHERE: u8 = 2;

/// The usable profiles of one IOR, in its order.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) ior: Ior,
    pub(crate) profiles: Vec<Profile>,
    /// ClientProtocol policies leave profiles out that could be used else.
    pub(crate) left_out: bool,
}

/// One usable profile.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) bands: Arc<Bands>,
    /// Where priorities decide which connections are taken.
    pub(crate) lanes: Option<Box<Lanes>>,
    pub(crate) object_key: Box<[u8]>,
    pub(crate) version: Version,
    /// What to announce on a new connection; `None` in GIOP 1.0 and where the profile says nothing about code sets.
    pub(crate) code_sets: Option<CodeSets>,
    /// What is spoken where nothing was negotiated.
    pub(crate) default_code_sets: CodeSets,
    /// Index among all profiles of the IOR, for servers that want the whole reference as the address.
    pub(crate) index: u32,
    /// The server is an ORB of this kind.
    pub(crate) is_ours: bool,
    /// What it says of priorities and protocols.
    pub(crate) said: Said,
}

impl Binding {
    /// By what the reference itself asks for, completed by `wider` policies.
    pub(crate) fn new(ior: Ior, own: Asked, wider: &Asked) -> Self {
        Binding {
            ior,
            asked: own.clone().or(wider),
            own,
            bound: Published::new("bound profile", Scope::Orb, None),
            bound_at: AtomicU8::new(UNBOUND),
            original: OnceLock::new(),
            forwarded: Published::new("forwarded target", Scope::Orb, None),
            moved: AtomicBool::new(false),
            local: OnceLock::new(),
            home: OnceLock::new(),
        }
    }

    pub(crate) fn ior(&self) -> &Ior {
        &self.ior
    }

    /// The target of the reference itself.
    #[inline]
    pub(crate) fn original(&self, core: &Core) -> &Arc<Target> {
        self.original.get_or_init(|| Arc::new(self.target(core, self.ior.clone())))
    }

    /// The way to the object at `ior`, by what was asked of this reference.
    #[cold]
    pub(crate) fn target(&self, core: &Core, ior: Ior) -> Target {
        let (profiles, left_out) = core.usable_profiles(&ior, &self.asked);
        Target { ior, profiles, left_out }
    }

    /// What the reference itself asks for.
    pub(crate) fn own(&self) -> &Asked {
        &self.own
    }

    /// The first profile of the reference itself has answered a call.
    #[inline]
    pub(crate) fn note_bound_at_first(&self, profile: &Profile) {
        // Once: every thread that calls reads it.
        if self.bound_at.load(Ordering::Relaxed) != AT_FIRST {
            self.bind(profile, AT_FIRST);
        }
    }

    /// A profile of `target` has answered a call.
    #[cold]
    pub(crate) fn note_bound(&self, target: &Arc<Target>, profile: usize) {
        let Some(said) = target.profiles.get(profile) else { return };
        let is_own = self.original.get().is_some_and(|own| Arc::ptr_eq(own, target));
        self.bind(said, if is_own && profile == 0 { AT_FIRST } else { ELSEWHERE });
    }

    #[cold]
    fn bind(&self, profile: &Profile, at: u8) {
        if !self.bound.load().as_ref().is_some_and(|bound| bound.at == at && bound.said == profile.said) {
            self.bound.update(|_| (Some(Bound { said: profile.said.clone(), at }), ()));
            // Release: who finds it finds what it is bound to.
            self.bound_at.store(at, Ordering::Release);
        }
    }

    /// Whether a call through it has been answered: from then on a rebind policy holds.
    pub(crate) fn is_bound(&self) -> bool {
        self.bound_at.load(Ordering::Acquire) != UNBOUND
    }

    /// Whether calls may go to the first profile of the reference itself before anything else is looked at.
    #[inline]
    pub(crate) fn begins_at_first(&self) -> bool {
        self.bound_at.load(Ordering::Relaxed) != ELSEWHERE && !self.has_moved()
    }

    /// Whether a call by `profile` is under the same policies as the last one that was answered.
    pub(crate) fn is_bound_as(&self, profile: &Profile) -> bool {
        self.bound.load().as_ref().is_some_and(|bound| bound.said == profile.said)
    }

    /// Whether the object was forwarded.
    #[inline]
    pub(crate) fn has_moved(&self) -> bool {
        self.moved.load(Ordering::Acquire)
    }

    /// Where to go first: the forwarded target if there is one.
    #[inline]
    pub(crate) fn forwarded(&self) -> Option<Arc<Target>> {
        if self.has_moved() { self.latest() } else { None }
    }

    #[cold]
    fn latest(&self) -> Option<Arc<Target>> {
        Option::clone(&self.forwarded.load())
    }

    pub(crate) fn set_forwarded(&self, target: Option<Arc<Target>>) {
        self.moved.store(target.is_some(), Ordering::Release);
        self.forwarded.store(Arc::new(target));
    }

    /// The object key if the object may live in this very ORB.
    #[inline]
    pub(crate) fn local_key(&self, core: &Core) -> Option<&[u8]> {
        self.local.get_or_init(|| core.local_key(&self.ior)).as_deref()
    }

    /// Where the object is in this very ORB, once a call has found it.
    #[inline]
    pub(crate) fn home(&self) -> Option<&Home> {
        self.home.get()
    }

    /// A call has found the object; the first one remembers where.
    #[inline]
    pub(crate) fn settle(&self, home: impl FnOnce() -> Option<Home>) {
        if self.home.get().is_none()
            && let Some(home) = home()
        {
            // Another thread may have been faster, with the same.
            let _ = self.home.set(home);
        }
    }

    #[inline]
    pub(crate) fn may_be_local(&self, core: &Core) -> bool {
        self.local_key(core).is_some()
    }
}

impl Profile {
    /// The connections of a call of the calling thread, and what its request says of the priority.
    ///
    /// # Errors
    /// Those of [`Lanes::choose`].
    #[inline]
    pub(crate) fn choose(&self, core: &Core) -> Result<Chosen<'_>, SystemException> {
        match &self.lanes {
            None => Ok(Chosen { pool: self.bands.pool(Band::of_thread()), priority: None }),
            Some(lanes) => lanes.choose(core),
        }
    }

    /// The connections of calls at `priority`.
    ///
    /// # Errors
    /// Those of [`Lanes::choose_at`].
    pub(super) fn choose_at(&self, core: &Core, priority: Priority) -> Result<Chosen<'_>, SystemException> {
        match &self.lanes {
            None => Ok(Chosen { pool: self.bands.pool(Band::of_priority(core, priority)?), priority: None }),
            Some(lanes) => lanes.choose_at(core, priority),
        }
    }
}

/// A target address other than the object key, for servers that insist.
pub(super) struct RareTarget<'t> {
    index: u32,
    tag: u32,
    data: &'t [u8],
    ior: Vec<u8>,
}

impl<'t> RareTarget<'t> {
    #[cold]
    pub(super) fn new(ior: &'t Ior, index: u32, endian: Endian) -> Result<Self, CdrError> {
        let profile = ior.profiles.get(index as usize).ok_or(CdrError::BadDiscriminator)?;
        let mut encoder = Encoder::new();
        encoder.set_endian(endian);
        ior.encode(&mut encoder)?;
        Ok(RareTarget { index, tag: profile.tag, data: &profile.data, ior: encoder.into_buffer() })
    }

    pub(super) fn target(&self, mode: AddressingMode) -> giop::Target<'_> {
        match mode {
            AddressingMode::Reference => {
                giop::Target::Reference { selected: self.index, tag: self.tag, data: self.data, ior: &self.ior }
            }
            AddressingMode::Profile | AddressingMode::Key => giop::Target::Profile { tag: self.tag, data: self.data },
        }
    }
}
