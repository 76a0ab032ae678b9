//! The ORBs of the commands that serve objects: their configuration and their addresses.

use corelane::{Endpoint, Orb, OrbBuilder, PoolConfig};
use corelane_config::Configuration;

/// The beginning of the names of the environment variables that configure the ORB of a server.
const ENVIRONMENT_PREFIX: &str = "CORELANE_ORB";

#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerOptions<'a> {
    pub(crate) orb_config: Option<&'a str>,
    pub(crate) listen: &'a [String],
    pub(crate) publish: &'a [String],
    /// The address to listen at if neither the arguments nor the configuration has one.
    pub(crate) default_listen: &'a str,
}

impl ServerOptions<'_> {
    /// Returns a builder with the configuration and the addresses. The configuration cannot change
    /// the threads of `pool`. The error is a message for the user.
    pub(crate) fn builder(self, pool: PoolConfig) -> Result<OrbBuilder, String> {
        let words = self.orb_config.iter().flat_map(|file| ["-ORBconfig", file]).map(str::to_owned);
        let (configuration, _) = Configuration::load(ENVIRONMENT_PREFIX, words).map_err(|error| error.to_string())?;
        let mut builder = configuration.builder_with_pool(pool).map_err(|error| error.to_string())?;
        if self.listen.is_empty() && !configuration.has_address() {
            builder = builder.listen(self.default_listen);
        }
        builder = self.listen.iter().fold(builder, OrbBuilder::listen);
        Ok(self.publish.iter().fold(builder, OrbBuilder::published_address))
    }
}

/// Returns a `corbaloc:` URL of the object with this plain key, for each TCP address of the ORB.
pub(crate) fn corbaloc_urls(orb: &Orb, key: &str) -> Vec<String> {
    let url = |endpoint: &Endpoint| match endpoint {
        Endpoint::Tcp { host, port } if host.contains(':') => Some(format!("corbaloc::1.2@[{host}]:{port}/{key}")),
        Endpoint::Tcp { host, port } => Some(format!("corbaloc::1.2@{host}:{port}/{key}")),
        _ => None,
    };
    orb.endpoints().iter().filter_map(url).collect()
}
