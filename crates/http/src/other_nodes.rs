//! Questions that only nodes can answer: a process asks all other live nodes the same question, or names the nodes to ask.

use std::time::Duration;

use fondaco_api::ErrorResource;
use fondaco_fetch::PeerPort;
use fondaco_model::NodeId;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use crate::app::App;
use crate::error::ApiError;

/// How many nodes are asked at a time.
const ASKED_AT_ONCE_MAX: usize = 32;

/// How long an answer is waited for.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// The answers of the other live nodes.
pub(super) struct Answers<T> {
    /// In the order of the nodes' numbers.
    pub(super) answers: Vec<(NodeId, T)>,
    /// The nodes that did not answer, or refused.
    pub(super) silent: Vec<NodeId>,
}

/// Asks all other live nodes for JSON.
pub(super) async fn ask<T: DeserializeOwned + Send + 'static>(app: &App, target: &str) -> Answers<T> {
    let others = live(app).into_iter().filter(|&(node, _)| Some(node) != app.node());
    let mut answers = Vec::new();
    let mut silent = Vec::new();
    for (node, answer) in ask_each(app, target, others.collect()).await {
        match answer {
            Some(answer) => answers.push((node, answer)),
            None => silent.push(node),
        }
    }
    answers.sort_by_key(|&(node, _)| node);
    silent.sort();
    Answers { answers, silent }
}

/// Asks all other live nodes, and all routers, for JSON. Returns the addresses of those that did not answer, or refused.
pub(super) async fn ask_all<T: DeserializeOwned + Send + 'static>(app: &App, target: &str) -> Vec<String> {
    let others = live(app).into_iter().filter(|&(node, _)| Some(node) != app.node());
    let nodes: Vec<String> = others.map(|(_, address)| address).collect();
    let view = app.operator.mirror().view();
    let routers = view.routers.values().map(|router| router.http.clone());
    let members = nodes
        .into_iter()
        .chain(routers)
        .map(|address| (address.clone(), address));
    let answers = ask_each::<_, T>(app, target, members.collect()).await;
    answers
        .into_iter()
        .filter_map(|(address, answer)| answer.is_none().then_some(address))
        .collect()
}

/// Asks these processes for JSON. `None` is the answer of one that refuses, or is silent.
async fn ask_each<K: Send + 'static, T: DeserializeOwned + Send + 'static>(
    app: &App,
    target: &str,
    members: Vec<(K, String)>,
) -> Vec<(K, Option<T>)> {
    let mut left = members.into_iter();
    let mut asked = JoinSet::new();
    let mut answers = Vec::new();
    loop {
        while asked.len() < ASKED_AT_ONCE_MAX
            && let Some((member, address)) = left.next()
        {
            let (port, target) = (app.peers.port(&address), target.to_owned());
            asked.spawn(async move { (member, ask_one(port, target).await.ok()) });
        }
        match asked.join_next().await {
            None => return answers,
            Some(Ok(answer)) => answers.push(answer),
            // The process ends.
            Some(Err(_)) => {}
        }
    }
}

/// Asks one process for JSON. The error is the reason why there is no answer.
pub(super) async fn ask_one<T: DeserializeOwned>(port: PeerPort, target: String) -> Result<T, String> {
    let asked = tokio::task::spawn_blocking(move || port.get(&target));
    let (status, body) = match tokio::time::timeout(ANSWER_TIME_MAX, asked).await {
        Err(_) => return Err(format!("it did not answer within {} s", ANSWER_TIME_MAX.as_secs())),
        Ok(Err(error)) => return Err(error.to_string()),
        Ok(Ok(answer)) => answer.map_err(|error| error.to_string())?,
    };
    if !status.is_success() {
        let refusal = serde_json::from_slice::<ErrorResource>(&body);
        return Err(refusal.map_or_else(|_| status.to_string(), |refusal| refusal.error.message));
    }
    serde_json::from_slice(&body).map_err(|error| format!("it answered with something else: {error}"))
}

/// The refusal of a request that this process cannot answer, with the nodes that can. `why` names the part that it lacks.
pub(super) fn ask_a_node(app: &App, why: &str) -> ApiError {
    let addresses: Vec<String> = live(app).into_iter().map(|(_, address)| address).collect();
    let message = match &addresses[..] {
        [] => format!("{why}: ask a node; none is live"),
        addresses => format!("{why}: ask a node: {}", addresses.join(", ")),
    };
    ApiError::new("unavailable", message)
}

/// The live nodes, with the addresses of their control ports.
fn live(app: &App) -> Vec<(NodeId, String)> {
    let view = app.operator.mirror().view();
    let live = view.nodes.iter().filter(|&(&node, _)| view.is_live(node));
    live.map(|(&node, known)| (node, known.record.http.clone())).collect()
}
