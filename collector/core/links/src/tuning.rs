//! Every tuned number of link inference.
//!
//! Each has its unit in its name, and beside it: what it means; where it comes from (*measured* on what, *reasoned*, or
//! *round*: a round number that worked, never optimised); and what ±25 % of it changes, as the larger of both effects
//! on the share of right links, in percentage points, and on the calibration error (ECE). Those effects are measured by
//! `python -m benchmarks.linking.sensitivity`, whose full table is in docs/linking-tuning.md.
//!
//! Not here are structural constants, which stand where they are used, with their reason: lengths of arrays, bounds on
//! time and memory, and values that are mathematical.
//!
//! In an ordinary build `TUNING` is a constant and costs nothing. With the feature `tunable`, only for the measurement,
//! `TWINTAP_LINKS_TUNING="name=value,…"` in the environment replaces values when the process starts.

/// Defines `Tuning`, its defaults, and access by name.
macro_rules! tuning {
    ($($(#[$about:meta])* $name:ident: $kind:ty = $value:expr;)*) => {
        /// The numbers; each in the unit that its name ends with.
        #[derive(Clone, Debug)]
        pub struct Tuning {
            $($(#[$about])* pub $name: $kind,)*
        }

        impl Tuning {
            pub const DEFAULT: Tuning = Tuning { $($name: $value,)* };

            /// Names and values; which of them are whole numbers.
            #[cfg(any(feature = "tunable", test))]
            pub fn values(&self) -> Vec<(&'static str, f64, bool)> {
                vec![$((stringify!($name), self.$name as f64, stringify!($kind) != "f64"),)*]
            }

            /// Whether there is a number of that name; it then has the value, rounded where it is whole.
            #[cfg(any(feature = "tunable", test))]
            fn set(&mut self, name: &str, value: f64) -> bool {
                let nearest = |kind: &str| if kind == "f64" { value } else { value.round() };
                match name {
                    $(stringify!($name) => self.$name = nearest(stringify!($kind)) as $kind,)*
                    _ => return false,
                }
                true
            }
        }
    };
}

#[cfg(not(feature = "tunable"))]
pub const TUNING: Tuning = Tuning::DEFAULT;
#[cfg(feature = "tunable")]
pub static TUNING: std::sync::LazyLock<Tuning> = std::sync::LazyLock::new(from_environment);

#[cfg(feature = "tunable")]
fn from_environment() -> Tuning {
    let mut tuning = Tuning::DEFAULT;
    let settings = std::env::var("TWINTAP_LINKS_TUNING").unwrap_or_default();
    for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
        let (name, value) = setting.split_once('=').expect("TWINTAP_LINKS_TUNING: name=value,…");
        let value = value.parse().expect("TWINTAP_LINKS_TUNING: a number after =");
        assert!(
            tuning.set(name, value),
            "TWINTAP_LINKS_TUNING: {name} is not a number of link inference"
        );
    }
    tuning
}

tuning! {
    // --- Dialogues (`dialogues`): exchanges that are one call ---

    /// Bytes of the longest interim answer. An interim answer is a status line without a body: `HTTP/1.1 100 Continue`
    /// and an empty line are 25 bytes. Reasoned.
    /// ±25 %: nothing.
    interim_max_bytes: i64 = 64;
    /// Percent of the answers of one length that must come first on their connection to be interim. Round.
    /// ±25 %: nothing.
    interim_first_percent: usize = 90;
    /// Percent of them that must be followed by more on their connection. Round.
    /// ±25 %: nothing.
    interim_followed_percent: usize = 50;

    // --- Classes (`classes`): calls of like sizes ---

    /// Cells of half an octave. Cells at most this many steps apart are one class. Round.
    /// ±25 %: 0.09 points of right links, ECE 0.0002.
    class_reach_cells: i32 = 2;
    /// A cell needs one in this many of a service's calls to be a class of its own. Round.
    /// ±25 %: nothing.
    common_cell_calls_ratio: usize = 1000;
    /// Methods distinguish a service's calls if at most one in this many of its heads was lost. Round.
    /// ±25 %: nothing.
    lost_heads_ratio: usize = 50;

    // --- How many (`rates`): guesses of calls for each request ---

    /// Rounds of expectation and maximisation with delays; four times as many without. Round.
    /// ±25 %: 0.11 points of right links, ECE 0.0004.
    em_rounds: usize = 15;
    /// Calls for each request. A class that makes fewer is left out of a guess. Round.
    /// ±25 %: under 0.01 points of right links, ECE 0.0009.
    min_calls_per_request: f64 = 0.003;
    /// Share of the calls. In the narrower guesses a class that makes a smaller share is left out. Round.
    /// ±25 %: under 0.01 points of right links.
    main_class_share: f64 = 0.05;
    /// Share of the calls by which their number may differ from a whole number for each request. Round.
    /// ±25 %: nothing.
    whole_number_tolerance_share: f64 = 0.03;
    /// A class with fewer requests than this share of another's is rare beside it. Round.
    /// ±25 %: nothing.
    rare_class_share: f64 = 0.05;
    /// Calls for each request of a rare class, for each that the main class makes. Reasoned: nothing is known of it.
    /// ±25 %: nothing.
    rare_class_fill: f64 = 0.5;
    /// Calls for each request, at least, where some requests make one and others do not. Round.
    /// ±25 %: nothing.
    optional_min_calls: f64 = 0.2;
    /// Share of the calls held to have no parent before the first round without delays. Round.
    /// ±25 %: under 0.01 points of right links.
    initial_orphan_share: f64 = 0.1;
    /// The same before the first round with delays. Round.
    /// ±25 %: 0.02 points of right links, ECE 0.0005.
    initial_learned_orphan_share: f64 = 0.05;
    /// Share of the calls held to have no parent where their number fits. Also the least share that counting may find.
    /// Round.
    /// ±25 %: 0.08 points of right links, ECE 0.0086.
    min_orphan_share: f64 = 0.002;
    /// The share held to have no parent where all calls are held to have one. Round.
    /// ±25 %: under 0.01 points of right links, ECE 0.0001.
    assumed_orphan_share: f64 = 0.02;

    // --- Slots (`problem`) ---

    /// Probability that a slot is filled, at least. Reasoned: nothing is certain. Round.
    /// ±25 %: no link.
    min_slot_probability: f64 = 0.001;
    /// The same at most.
    /// ±25 %: 0.22 points of right links, ECE 0.0093.
    max_slot_probability: f64 = 0.995;
    /// A further slot of a request that is less likely filled is for another kind of call: a retry, a second look.
    /// Round. ±25 %: nothing.
    repeat_slot_probability: f64 = 0.7;
    /// Probability at most that a slot of a request that was not captured whole is filled. Reasoned: as often as not.
    /// ±25 %: no link.
    edge_slot_probability: f64 = 0.5;
    /// Calls for each request. A mean of up to so much above a whole number is noise. Round.
    /// ±25 %: 0.01 points of right links, ECE 0.0004.
    rate_noise_calls: f64 = 0.15;
    /// Probability at most that a call has no parent. Round.
    /// ±25 %: under 0.01 points of right links.
    max_orphan_probability: f64 = 0.9;
    /// Pairs that are looked at for each call to learn what possible pairs look like. Round.
    /// ±25 %: 0.03 points of right links, ECE 0.0009.
    possible_pairs_per_call: usize = 16;

    // --- First links in order, and which order (`problem`, `host_links`) ---

    /// Nats that a first link loses for a delay of the typical duration; by its square. Round.
    /// ±25 %: 0.01 points of right links, ECE 0.0004.
    first_link_nats: f64 = 0.02;
    /// Squares of typical durations beyond which a first link loses no more. Round.
    /// ±25 %: no link.
    first_link_max_squares: f64 = 100.0;
    /// Nats that a call without parent costs beside its probability where links are in order. Reasoned: calls that come
    /// at any time (a Poisson process) may also not come, and a server makes its calls because it was asked.
    /// ±25 %: 0.02 points of right links, ECE 0.0005.
    ordered_orphan_nats: f64 = 1.0;
    /// Calls on which all guesses are compared. Round; bounds the cost.
    /// ±25 %: nothing.
    short_stretch_calls: usize = 1000;
    /// Calls on which the best of them are. Round; bounds the cost.
    /// ±25 %: nothing.
    long_stretch_calls: usize = 8000;
    /// Rounds of linking and learning there. Round.
    /// ±25 %: 0.02 points of right links, ECE 0.0005.
    plan_rounds: usize = 3;
    /// Guesses that are compared on the long stretch. Round.
    /// ±25 %: nothing.
    long_stretch_guesses: usize = 3;
    /// Nats per call by which another explanation (classes by duration; calls counted without order) must be better.
    /// Round.
    /// ±25 %: 0.01 points of right links, ECE 0.0000.
    better_guess_nats_per_call: f64 = 0.2;
    /// Share of calls without parent from which on other explanations are looked for. Round.
    /// ±25 %: nothing.
    many_orphans_share: f64 = 0.1;
    /// Calls for each request below which requests that make one may be those that take long. Round.
    /// ±25 %: no link.
    seldom_calls_per_request: f64 = 0.5;
    /// Octaves of duration that make a class of requests. Round.
    /// ±25 %: 0.12 points of right links, ECE 0.0007.
    duration_class_octaves: u32 = 2;
    /// Calls for each request of a class that hardly makes any, where words may show that it did. Round.
    /// ±25 %: nothing.
    rare_class_calls_per_request: f64 = 0.01;
    /// How far a server's share of a request's calls may be from one for calls to go one to each server. Round.
    /// ±25 %: nothing.
    one_each_tolerance_calls: f64 = 0.1;
    /// Calls of a kind, at one host or in a pool, below which nothing is learned. Round.
    /// ±25 %: under 0.01 points of right links, ECE 0.0001.
    min_calls_per_kind: usize = 20;
    /// Pools: a host that makes this many calls of a kind is no part of a pool. Round.
    /// ±25 %: nothing.
    pool_max_calls_per_host: usize = 150;

    // --- Evidence (`evidence`): delays and byte counts ---

    /// Links that the usual distribution is worth beside those that were counted (Laplace). Round.
    /// ±25 %: 0.09 points of right links, ECE 0.0028.
    prior_links: f64 = 3.0;
    /// Pairs that each bin of a histogram is held to have had. Round.
    /// ±25 %: 0.13 points of right links, ECE 0.0003.
    prior_pairs_per_bin: f64 = 0.05;
    /// Nats that one comparison may say at most, for or against a link. Round.
    /// ±25 %: no link.
    max_score_nats: f64 = 8.0;
    /// Links that must show a difference of byte counts: else links would be evidence for themselves. Reasoned.
    /// ±25 %: under 0.01 points of right links.
    usual_difference_links: f64 = 4.0;
    /// Nats per link by which inexact differences of byte counts must separate links from possible pairs. Round.
    /// ±25 %: nothing.
    min_bytes_nats: f64 = 0.1;
    /// Standard deviations by which a difference must be more frequent among open requests than among as many others.
    /// Round.
    /// ±25 %: no link.
    bytes_beyond_others_sigmas: f64 = 3.0;
    /// Share of the links that such differences must explain. Round.
    /// ±25 %: nothing.
    min_explained_links_share: f64 = 0.3;

    // --- Words of targets (`target_words`) ---

    /// Calls below which a kind may begin with what the words of all kinds show. Round.
    /// ±25 %: nothing.
    words_min_calls_per_kind: usize = 200;
    /// Standard deviations by which a pattern of shared words must be too frequent among open requests. Round.
    /// ±25 %: nothing.
    words_beyond_chance_sigmas: f64 = 4.0;
    /// Nats per link by which words must separate links from possible pairs. Round.
    /// ±25 %: nothing.
    min_words_nats: f64 = 0.05;
    /// Nats of surprise, ln(requests / requests with it), from which on a shared word is rare. Round.
    /// ±25 %: 0.15 points of right links, ECE 0.0001.
    rare_word_nats: u8 = 2;
    /// Weight of no parent for a call of a rare kind, beside all requests that share as much as chance allows. Round.
    /// ±25 %: no link.
    few_calls_orphan_weight: f64 = 0.1;

    // --- Connections of one service (`connection_owners`) ---

    /// Share of a call that each service is held to have at least. Round.
    /// ±25 %: no link.
    owner_min_share: f64 = 0.01;
    /// Nats per connection by which owned connections must explain calls better than shared ones. Round.
    /// ±25 %: nothing.
    owner_min_gain_nats: f64 = 1.0;
    /// Mean probability of the owner of a call's connection, at least. Round.
    /// ±25 %: nothing.
    owner_min_probability: f64 = 0.9;
    /// Stretches of calls from which the owners of connections are inferred. Round; bounds the cost.
    /// ±25 %: nothing.
    owner_stretches: usize = 8;

    // --- Work after the answer (`work_after_response`) ---

    /// Share of a kind's calls that must be made while no request is open. Round.
    /// ±25 %: nothing.
    linger_min_orphan_share: f64 = 0.2;
    /// Requests for each such call, at least, beyond those before other times. Round.
    /// ±25 %: 1.27 points of right links, ECE 0.0010.
    linger_min_excess_requests: f64 = 0.5;
    /// Standard deviations by which there must be more. Round.
    /// ±25 %: 1.27 points of right links, ECE 0.0010.
    linger_sigmas: f64 = 5.0;
    /// Share of that excess after which no more requests are looked for. Round.
    /// ±25 %: nothing.
    linger_covered_share: f64 = 0.97;
    /// Factor by which requests are assumed to linger longer than that. Round.
    /// ±25 %: nothing.
    linger_margin_ratio: f64 = 1.5;

    // --- Short connections (`short_connections`), and requests that alone were open (`only_open`) ---

    /// Share of a host's connections of a kind that must lie within a request to be short. Round.
    /// ±25 %: not measured.
    short_min_share: f64 = 0.95;
    /// Requests around each such connection, at least, beyond those around other times, where it is longer than most.
    /// Round. ±25 %: not measured.
    short_min_excess_requests: f64 = 0.2;
    /// Share of a kind's calls that may be a host's own, at most, for a request that is open alone to be the parent.
    /// Round. ±25 %: not measured.
    only_open_max_own_share: f64 = 0.1;

    // --- Links without order (`without_order`, `marginals`) ---

    /// Possible pairs that are kept for a call. Round; bounds the cost.
    /// ±25 %: 0.01 points of right links, ECE 0.0002.
    max_pairs_per_call: usize = 128;
    /// Of these, pairs near the link in order. Round.
    /// ±25 %: no link.
    near_pairs_per_call: usize = 48;
    /// Turns of belief propagation at most. Round; bounds the cost.
    /// ±25 %: 0.10 points of right links, ECE 0.0017.
    propagation_rounds: usize = 12;
    /// Relative change of a message after which there are no more turns. Round.
    /// ±25 %: no link.
    propagation_tolerance: f64 = 0.003;
    /// Probability that a call ends after its request's answer, beside before it, before anything is learned. Round.
    /// ±25 %: 0.03 points of right links, ECE 0.0013.
    ends_outside_probability: f64 = 0.02;
    /// Turns of sharing calls and learning from the shares. Round.
    /// ±25 %: 0.13 points of right links, ECE 0.0021.
    sharing_rounds: usize = 3;
    /// A pair with a smaller share teaches nothing. Round; bounds the cost.
    /// ±25 %: 0.05 points of right links, ECE 0.0019.
    min_learned_share: f64 = 1e-3;
    /// Calls from which on what a pair shows of itself is not left out of the evidence for it. Reasoned: of so many,
    /// one link makes no difference. ±25 %: no link.
    self_evidence_calls: usize = 1000;
    /// Steps of a pair's share in which it is left out. Round.
    /// ±25 %: 0.10 points of right links, ECE 0.0021.
    self_evidence_steps: usize = 4;
    /// Nats that a call without parent costs beside its probability where calls are shared. Round, above
    /// `ordered_orphan_nats`.
    /// ±25 %: 0.23 points of right links, ECE 0.0016.
    shared_orphan_nats: f64 = 1.5;
    /// Turns of sharing calls and counting how many each class makes. Round.
    /// ±25 %: nothing.
    refit_rounds: usize = 6;
    /// Nats by which each turn must explain the calls better. Round.
    /// ±25 %: under 0.01 points of right links.
    refit_min_gain_nats: f64 = 1.0;

    // --- Is an order kept? (`without_order`) ---

    /// Calls on which it is judged, at least. Round.
    /// ±25 %: no link; ECE 0.0001.
    judged_calls: usize = 1000;
    /// And calls for each request that is open at a time. Round.
    /// ±25 %: nothing.
    judged_calls_per_open_request: usize = 10;
    /// Log-odds beyond which an order, or none, is settled for the rest of the trace. Round.
    /// ±25 %: nothing.
    settled_log_odds: f64 = 4.0;
    /// Part of what is open without an order that it must explain by the delays on its own side. Reasoned: half.
    /// ±25 %: 0.04 points of right links, ECE 0.0049.
    cause_side_part: f64 = 0.5;
    /// Log-odds for each part more. Measured: chosen on recordings of the bundled store and of `chain`.
    /// ±25 %: no link.
    cause_side_log_odds_per_part: f64 = 20.0;
    /// Log-odds that this side gives at most. Chosen so.
    /// ±25 %: 0.03 points of right links, ECE 0.0019.
    cause_side_max_log_odds: f64 = 5.0;
    /// Log-odds against an order for each part that is explained worse than without. Chosen so.
    /// ±25 %: no link.
    worse_side_log_odds_per_part: f64 = 100.0;
    /// Part from which on the other side is not compared with links near the order. Chosen so.
    /// ±25 %: nothing.
    clear_part: f64 = 0.6;
    /// Nats per call added to both sides of that part: where little is open, an order need not explain it. Round.
    /// ±25 %: 0.05 points of right links, ECE 0.0003.
    min_open_nats: f64 = 0.1;
    /// Requests. The nearer of two distances from the order with which it is compared. Round.
    /// ±25 %: 0.07 points of right links, ECE 0.0065.
    near_order_requests: f64 = 4.0;
    /// The farther. Round.
    /// ±25 %: no link.
    far_order_requests: f64 = 16.0;
    /// Turns of sharing and learning of links near the order. Round.
    /// ±25 %: 0.07 points of right links, ECE 0.0097.
    near_order_rounds: usize = 2;
    /// Nats per call, of which something is open, by which the order must explain the other side better, since it was
    /// chosen to do so. Chosen on recordings of the bundled store and of `chain`, and simulated loops.
    /// ±25 %: 0.07 points of right links, ECE 0.0060.
    other_side_min_nats: f64 = 0.06;
    /// The same where a request makes several such calls, not at once. Chosen so.
    /// ±25 %: no link.
    repeated_min_nats: f64 = 0.5;
    /// Log-odds for each nat more. Chosen so.
    /// ±25 %: 0.10 points of right links, ECE 0.0010.
    other_side_log_odds_per_nat: f64 = 80.0;
    /// Log-odds that the other side gives at most. Chosen so.
    /// ±25 %: no link; ECE 0.0001.
    other_side_max_log_odds: f64 = 12.0;
    /// Log-odds that it takes at most. Chosen so.
    /// ±25 %: 0.06 points of right links, ECE 0.0006.
    other_side_max_worse_log_odds: f64 = 10.0;
    /// Nats that who is next in a queue may be worth if calls are a few requests from their place. Reasoned: about the
    /// entropy of four places, ln 4.
    /// ±25 %: 0.03 points of right links, ECE 0.0001.
    next_in_queue_nats: f64 = 1.4;
    /// Calls of one request are made at once if they are this many times closer than those of different requests.
    /// Round. ±25 %: nothing.
    made_at_once_ratio: i64 = 2;
    /// This is not required if there are this many times fewer of them. Round.
    /// ±25 %: nothing.
    few_repeated_ratio: usize = 20;
    /// Nats of doubt in all, up to which an order is not surer than delays and bytes are of its links. Round.
    /// ±25 %: nothing.
    little_doubt_nats: f64 = 30.0;
    /// Nats of doubt from which on a call counts there. Round.
    /// ±25 %: nothing.
    doubtful_call_nats: f64 = 0.3;
    /// Part of what should be explained around a link below which the order may have slipped. Chosen so.
    /// ±25 %: 0.03 points of right links, ECE 0.0002.
    slip_part: f64 = 0.6;
    /// Calls on each side of a link among which a slip shows. Round.
    /// ±25 %: 0.02 points of right links, ECE 0.0007.
    slip_window_calls: usize = 100;
    /// Confidence at most of any link. Reasoned: one in two hundred is wrong for reasons that are not modelled.
    /// ±25 %: no link; ECE 0.0005.
    max_confidence: f64 = 0.995;

    // --- Choice (`host_links`) ---

    /// A call that is less likely to have any parent is given none. Reasoned: half.
    /// ±25 %: 0.17 points of right links, ECE 0.0013.
    min_parent_probability: f64 = 0.5;
    /// A link that is surer is not examined with histories. Round.
    /// ±25 %: 0.04 points of right links, ECE 0.0031.
    doubt_max_confidence: f64 = 0.95;
    /// A request that is less likely to have made a call is no candidate. Round; bounds the cost.
    /// ±25 %: 0.05 points of right links, ECE 0.0019.
    min_candidate_share: f64 = 0.002;

    // --- Histories (`mcmc_histories`) ---

    /// Chains that begin apart. Round.
    /// ±25 %: 0.16 points of right links, ECE 0.0026.
    chains: usize = 4;
    /// Sweeps of each over all calls in doubt. Round; bounds the cost.
    /// ±25 %: 0.21 points of right links, ECE 0.0018.
    sweeps: usize = 120;
    /// Of these, the first ones in which scores count nothing. Round.
    /// ±25 %: 0.17 points of right links, ECE 0.0021.
    hot_sweeps: usize = 8;
    /// And those before shares are counted. Round.
    /// ±25 %: 0.04 points of right links, ECE 0.0008.
    burn_in_sweeps: usize = 30;
    /// Sweeps after which everything is counted anew. Round.
    /// ±25 %: 0.05 points of right links, ECE 0.0021.
    recount_sweeps: usize = 2;
    /// Actions that the uniform distribution is worth beside those that were counted. Round.
    /// ±25 %: 0.16 points of right links, ECE 0.0026.
    prior_actions: f64 = 2.0;
    /// Requests that each number of calls is held to have had. Round (Jeffreys' prior is 0.5).
    /// ±25 %: 0.11 points of right links, ECE 0.0019.
    prior_requests: f64 = 0.5;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_set_by_name_and_whole_ones_rounded() {
        let mut tuning = Tuning::DEFAULT;
        assert!(tuning.set("sharing_rounds", 2.25) && tuning.set("slip_part", 0.45));
        assert_eq!((tuning.sharing_rounds, tuning.slip_part), (2, 0.45));
        assert!(!tuning.set("no_such_number", 1.0));
        let changed = |(after, before): &((&str, f64, bool), (&str, f64, bool))| after.1 != before.1;
        let values = tuning.values().into_iter().zip(Tuning::DEFAULT.values());
        assert_eq!(values.filter(changed).count(), 2);
    }
}
