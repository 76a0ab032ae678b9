//! Real-time pools of a configuration.

use corelane::rt::{LanesConfig, ThreadpoolConfig, ThreadpoolId};
use corelane::{Orb, SystemException};

/// A real-time pool of a configuration, which the program creates.
///
/// # Examples
/// ```
/// use corelane_config::Configuration;
/// let text = "listen = 'tcp:127.0.0.1:0'\n[real-time]\nscheduling = 'fair'\n[real-time.pool.flight]\nstatic-threads = 2\n";
/// let configuration = Configuration::new().read_text("flight.toml", text)?;
/// let orb = configuration.builder()?.build()?;
/// let pool = configuration.threadpool("flight").ok_or("the file has no pool `flight`")?.create(&orb)?;
/// # let _ = pool;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub enum ConfiguredThreadpool {
    /// A pool without lanes, for
    /// [`RtOrb::create_threadpool`](corelane::rt::RtOrb::create_threadpool).
    WithoutLanes(ThreadpoolConfig),
    /// A pool with lanes, for
    /// [`RtOrb::create_threadpool_with_lanes`](corelane::rt::RtOrb::create_threadpool_with_lanes).
    WithLanes(LanesConfig),
}

impl ConfiguredThreadpool {
    /// Creates the pool in an ORB.
    ///
    /// # Errors
    /// As for [`RtOrb::create_threadpool`](corelane::rt::RtOrb::create_threadpool) and
    /// [`RtOrb::create_threadpool_with_lanes`](corelane::rt::RtOrb::create_threadpool_with_lanes).
    pub fn create(&self, orb: &Orb) -> Result<ThreadpoolId, SystemException> {
        match self {
            ConfiguredThreadpool::WithoutLanes(config) => orb.real_time().create_threadpool(config),
            ConfiguredThreadpool::WithLanes(config) => orb.real_time().create_threadpool_with_lanes(config),
        }
    }
}
