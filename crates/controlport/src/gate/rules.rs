//! Rules for the routes: the callers that each admits, in one table. A route without a rule admits nobody.

use api::people::Role;
use axum::http::Method;

/// The callers that a route admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admits {
    /// All callers, even without a token.
    Everybody,
    Roles(&'static [Role]),
    /// The roles that may submit jobs, and programs of jobs through the node on which they run.
    SubmittersAndPrograms,
    /// The roles that may look, and programs of jobs through the node on which they run.
    LookersAndPrograms,
    /// Nodes that have joined; if the path names a node, only that node.
    Nodes,
    /// Administrators, and the user who owns the job in the path.
    OwnerOfJob,
}

/// The rule of a route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub method: &'static str,
    /// Path of the route, such as `/v1/jobs/{job}`.
    pub path: &'static str,
    pub admits: Admits,
    /// True if each call writes an audit row, because it changes something that operators may want to trace. The
    /// history of jobs covers the calls of working nodes.
    pub is_audited: bool,
}

const LOOKERS: Admits = Admits::Roles(&[Role::Admin, Role::User, Role::ReadOnly]);
const SUBMITTERS: Admits = Admits::Roles(&[Role::Admin, Role::User]);
/// The roles that may let a node join.
const JOINERS: Admits = Admits::Roles(&[Role::Admin, Role::Node]);
const NODES: Admits = Admits::Nodes;
const ADMINS: Admits = Admits::Roles(&[Role::Admin]);

const fn looks(method: &'static str, path: &'static str, admits: Admits) -> Rule {
    Rule { method, path, admits, is_audited: false }
}

const fn changes(method: &'static str, path: &'static str, admits: Admits) -> Rule {
    Rule { method, path, admits, is_audited: true }
}

pub(crate) const RULES: &[Rule] = &[
    looks("GET", "/healthz", Admits::Everybody),
    looks("GET", "/openapi.json", Admits::Everybody),
    looks("GET", "/metrics", Admits::Everybody),
    looks("GET", "/v1/jobs", LOOKERS),
    looks("GET", "/v1/jobs/{job}", LOOKERS),
    looks("GET", "/v1/jobs/{job}/logs", Admits::OwnerOfJob),
    looks("GET", "/v1/jobs/{job}/wait", LOOKERS),
    looks("GET", "/v1/jobs/{job}/progress", LOOKERS),
    looks("GET", "/v1/jobs/{job}/report", LOOKERS),
    looks("GET", "/v1/jobs/{job}/placements", LOOKERS),
    looks("GET", "/v1/jobs/{job}/runs", LOOKERS),
    looks("POST", "/v1/lineage", LOOKERS),
    looks("GET", "/v1/usage", LOOKERS),
    looks("GET", "/v1/nodes", LOOKERS),
    looks("POST", "/v1/state", LOOKERS),
    changes("POST", "/v1/jobs", SUBMITTERS),
    changes("POST", "/v1/jobs/batch", SUBMITTERS),
    changes("POST", "/v1/flows", SUBMITTERS),
    changes("POST", "/v1/jobs/{job}/cancel", Admits::OwnerOfJob),
    looks("POST", "/v1/jobs/{job}/fsck", Admits::OwnerOfJob),
    changes("POST", "/v1/gc", SUBMITTERS),
    looks("POST", "/v1/files/missing", SUBMITTERS),
    changes("PUT", "/v1/files/{sha256}", SUBMITTERS),
    looks("GET", "/v1/files/{sha256}", NODES),
    changes("POST", "/v1/intermediate-files", Admits::SubmittersAndPrograms),
    looks("GET", "/v1/intermediate-files", Admits::SubmittersAndPrograms),
    looks("POST", "/v1/intermediate-files/open", Admits::SubmittersAndPrograms),
    changes("POST", "/v1/intermediate-files/remove", Admits::SubmittersAndPrograms),
    changes("POST", "/v1/intermediate-files/change", Admits::SubmittersAndPrograms),
    looks("POST", "/v1/nodes/{node}/intermediate-files", NODES),
    looks("POST", "/v1/stored-files/find", Admits::LookersAndPrograms),
    looks("POST", "/v1/stored-files/list", Admits::LookersAndPrograms),
    looks("POST", "/v1/stored-files/lease", Admits::LookersAndPrograms),
    changes("POST", "/v1/stored-files/change", Admits::SubmittersAndPrograms),
    looks("POST", "/v1/stored-files/commits", Admits::LookersAndPrograms),
    changes("POST", "/v1/stored-files/puts", Admits::SubmittersAndPrograms),
    looks("POST", "/v1/stored-files/puts/known", Admits::SubmittersAndPrograms),
    looks("POST", "/v1/stored-files/puts/numbers", Admits::SubmittersAndPrograms),
    looks("POST", "/v1/stored-files/puts/places", Admits::SubmittersAndPrograms),
    looks("POST", "/v1/stored-files/puts/files", Admits::SubmittersAndPrograms),
    looks("POST", "/v1/stored-files/puts/commit", Admits::SubmittersAndPrograms),
    looks("POST", "/v1/stored-files/puts/abandon", Admits::SubmittersAndPrograms),
    looks("POST", "/v1/nodes/{node}/stored-files", NODES),
    looks("POST", "/v1/nodes/{node}/stored-files/parts", NODES),
    looks("GET", "/v1/tokens", ADMINS),
    changes("POST", "/v1/tokens", ADMINS),
    changes("POST", "/v1/tokens/{token}/revoke", ADMINS),
    looks("GET", "/v1/groups", LOOKERS),
    changes("POST", "/v1/groups", ADMINS),
    changes("POST", "/v1/groups/{group}/delete", ADMINS),
    changes("POST", "/v1/groups/{group}/members", ADMINS),
    changes("POST", "/v1/groups/{group}/members/remove", ADMINS),
    changes("POST", "/v1/nodes/{node}/drain", ADMINS),
    changes("POST", "/v1/nodes/{node}/drill", ADMINS),
    changes("POST", "/v1/nodes/admission", JOINERS),
    changes("POST", "/v1/nodes", JOINERS),
    changes("POST", "/v1/nodes/{node}/leave", NODES),
    looks("POST", "/v1/nodes/{node}/poll", NODES),
    looks("POST", "/v1/nodes/{node}/kept", NODES),
    looks("POST", "/v1/nodes/{node}/checked", NODES),
    looks("POST", "/v1/nodes/{node}/struck", NODES),
    looks("POST", "/v1/nodes/{node}/seen", NODES),
    looks("POST", "/v1/seen", SUBMITTERS),
    looks("POST", "/v1/nodes/{node}/data-tokens", NODES),
    looks("POST", "/v1/jobs/{job}/brief", NODES),
    looks("POST", "/v1/jobs/{job}/places", NODES),
    looks("POST", "/v1/jobs/{job}/stored-files", NODES),
    looks("POST", "/v1/jobs/{job}/stored-output/places", NODES),
    looks("POST", "/v1/jobs/{job}/stored-output/commit", NODES),
    looks("POST", "/v1/jobs/{job}/boundaries", NODES),
];

/// Earlier spellings of routes, for clients older than protocol 13: (spelling, route).
pub(crate) const OLD_ROUTES: [(&str, &str); 3] = [
    ("/v1/ifiles", "/v1/intermediate-files"),
    ("/v1/ifiles/open", "/v1/intermediate-files/open"),
    ("/v1/ifiles/remove", "/v1/intermediate-files/remove"),
];

/// Returns the route that an earlier spelling stands for; None for a route of today.
pub(crate) fn route_of_today(path: &str) -> Option<&'static str> {
    OLD_ROUTES.iter().find(|(old, _)| *old == path).map(|(_, route)| *route)
}

/// Returns the rule of a route; HEAD follows GET. An earlier spelling has the rule of its route.
pub(crate) fn rule_of(method: &Method, path: &str) -> Option<&'static Rule> {
    let path = route_of_today(path).unwrap_or(path);
    let method = match *method {
        Method::HEAD => "GET",
        ref other => other.as_str(),
    };
    RULES.iter().find(|rule| rule.method == method && rule.path == path)
}

#[cfg(test)]
mod tests {
    use super::{OLD_ROUTES, RULES, rule_of};
    use axum::http::Method;
    use std::collections::BTreeSet;

    #[test]
    fn routes_and_rules_match_one_to_one() {
        let document: serde_json::Value = serde_json::from_str(&crate::openapi_text()).unwrap();
        let mut routes = BTreeSet::from([("GET".to_string(), "/openapi.json".to_string())]);
        for (path, methods) in document["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys() {
                routes.insert((method.to_uppercase(), path.clone()));
            }
        }
        let rules: Vec<_> =
            RULES.iter().map(|rule| (rule.method.to_string(), rule.path.to_string())).collect();
        assert_eq!(rules.iter().cloned().collect::<BTreeSet<_>>(), routes);
        assert_eq!(rules.len(), routes.len(), "a route has two rules");
    }

    #[test]
    fn old_spellings_have_the_rules_of_today() {
        for (old, route) in OLD_ROUTES {
            assert!(std::ptr::eq(
                rule_of(&Method::POST, old).unwrap(),
                rule_of(&Method::POST, route).unwrap()
            ));
        }
    }

    #[test]
    fn routes_outside_the_table_have_no_rule() {
        assert!(rule_of(&Method::HEAD, "/v1/jobs").is_some());
        assert!(rule_of(&Method::DELETE, OLD_ROUTES[0].0).is_none());
        assert!(rule_of(&Method::DELETE, "/v1/jobs").is_none());
        assert!(rule_of(&Method::GET, "/v1/job").is_none());
    }
}
