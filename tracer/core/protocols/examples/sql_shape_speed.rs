//! How fast statements become shapes: `cargo run --release -p twintap-protocols --example sql_shape_speed`.

use std::time::Instant;

use twintap_protocols::sql::{Dialect, shape};

const ROUNDS: usize = 200;
const TOTAL_BYTES: usize = 1 << 18; // short rounds, which other processes rarely interrupt

fn main() {
    let values: Vec<String> = (0..200)
        .map(|n| format!("({n}, 'a text of some length {n}', {n}.5)"))
        .collect();
    let columns: Vec<String> = (0..60)
        .map(|n| format!("order0_.column_number_{n} as column{n}_0_"))
        .collect();
    let cases = [
        (
            "short",
            "UPDATE pgbench_accounts SET abalance = abalance + 4711 WHERE aid = 17".to_owned(),
        ),
        (
            "many columns",
            format!(
                "select {} from orders order0_ where order0_.id = $1",
                columns.join(", ")
            ),
        ),
        (
            "many rows",
            format!("INSERT INTO t (id, word, amount) VALUES {}", values.join(", ")),
        ),
    ];
    for (name, text) in cases {
        let count = TOTAL_BYTES / text.len();
        let mut best = f64::INFINITY;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let shown: usize = (0..count)
                .map(|_| {
                    shape(std::hint::black_box(text.as_bytes()), true, Dialect::PostgreSql)
                        .rest
                        .len()
                })
                .sum();
            std::hint::black_box(shown);
            best = best.min(start.elapsed().as_secs_f64());
        }
        let (bytes, each) = ((count * text.len()) as f64, best / count as f64);
        println!("{name}: {:.0} MB/s, {:.0} ns each", bytes / best / 1e6, each * 1e9);
    }
}
