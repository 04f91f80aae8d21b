-- SPDX-License-Identifier: Apache-2.0
-- What each operator call, and each device row that no call launched, takes in the steps, and what it costs at
-- least by its arguments: FLOPs, bytes, the roofline.
--
-- Columns:
--   rank INTEGER: rank
--   step INTEGER: step in which it begins
--   operator BIGINT: id of the call; null for a device row without a call
--   name VARCHAR: operator, or kernel without its arguments
--   shapes VARCHAR: sizes of its inputs, as a JSON list
--   phase VARCHAR: what it was for: forward, backward, optimizer, ...
--   module VARCHAR: path of the nn.Module that launched it
--   category VARCHAR: what its longest device row does: gemm, attention, ...
--   kernels BIGINT: device rows that it launched; 0 where the CPU is the device
--   dur_ns BIGINT [ns]: union of these rows, of transfers beside the device's core (awaited_ns in device_rows) the core's
--     time for them; of a CPU's call its time outside of calls that are counted themselves
--   computes BOOLEAN: whether a kernel that is not communication is among them
--   recomputed BOOLEAN: whether it is a forward operator run again for the backward pass
--   flops DOUBLE [FLOP]: by the cost model, or as the trace states them
--   bytes DOUBLE [B]: compulsory traffic of the device's memory, likewise
--   precision VARCHAR: precision of the arithmetic
--   compute_ns DOUBLE [ns]: time of the arithmetic at the device's dense peak
--   roofline_ns DOUBLE [ns]: least time: the longer of the arithmetic's and the memory traffic's; null where marked
--   bound VARCHAR: compute or memory, whichever that is
--   mark VARCHAR: of calls alike that are faster than their roofline: cache if the last cache may explain it, or above
--   marked_roofline_ns DOUBLE [ns]: the least time that they take less than
--   why_not VARCHAR: why no FLOPs and bytes are known
--   peak_flops_per_s DOUBLE [FLOP/s]: dense peak of the precision, by the catalog
--   attainable_flops_per_s DOUBLE [FLOP/s]: fastest matrix product of the precision measured on the device
--   batch BIGINT: matrix products of a call; null for other operators
--   m BIGINT: size of a product, (M, K) times (K, N)
--   n BIGINT: likewise
--   k BIGINT: likewise
--   layout VARCHAR: N or T of each operand: rows or columns contiguous; null where strides are not recorded
--   assumes VARCHAR: assumptions of the cost model besides the recorded arguments
--
-- Example:
--   SELECT name, count(*) AS calls, sum(dur_ns) AS ns, quantile_cont(dur_ns, 0.9) AS p90_ns,
--     sum(dur_ns - roofline_ns) AS gap_ns, sum(dur_ns) FILTER (flops IS NOT NULL) / sum(dur_ns) AS modelled_share
--   FROM operator_work GROUP BY name ORDER BY ns DESC, name LIMIT 20
WITH operator_names AS MATERIALIZED (
  SELECT
    name, operator_family(name) AS family, name_category(name) AS category, operator_reads_inner(name) AS reads_inner
  FROM (SELECT DISTINCT name FROM operators)
),
device AS (
  SELECT
    d.rank, d.step, o.operator AS own,
    CASE WHEN d.category = 'communication' THEN o.operator ELSE o.owner END AS owner,
    d.name, d.start_ns, d.end_ns, coalesce(d.awaited_ns, d.dur_ns) AS dur_ns, d.awaited_ns, d.track, d.flops, d.hbm_bytes, d.module,
    coalesce(d.phase, 'other') AS phase, coalesce(d.category, 'other') AS category,
    d.kind = 'kernel' AND d.category IS DISTINCT FROM 'communication' AS computes
  FROM device_rows AS d LEFT JOIN operator_owners AS o ON o.rank = d.rank AND o.operator = d.operator
  WHERE d.in_window
),
pieces AS (
  SELECT
    *,
    max(end_ns) FILTER (awaited_ns IS NULL) OVER (
      PARTITION BY rank, owner ORDER BY start_ns, end_ns, track, name
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS busy_until
  FROM device WHERE owner IS NOT NULL
),
launched AS (
  SELECT
    rank, min(step) AS step, owner AS operator,
    list(name ORDER BY start_ns, end_ns, track, name) AS kernel_names,
    first(phase ORDER BY dur_ns DESC, start_ns, track, name) AS phase,
    first(module ORDER BY dur_ns DESC, start_ns, track, name) AS module,
    first(category ORDER BY dur_ns DESC, start_ns, track, name) AS category,
    count(*) AS kernels,
    sum(
      coalesce(awaited_ns, greatest(0, end_ns - greatest(start_ns, coalesce(busy_until, start_ns))))
    )::BIGINT AS dur_ns,
    bool_or(computes) AS computes,
    CASE WHEN count(flops) = count(*) THEN sum(flops) END AS stated_flops,
    CASE WHEN count(hbm_bytes) = count(*) THEN sum(hbm_bytes)::DOUBLE END AS stated_bytes
  FROM pieces GROUP BY rank, owner
),
on_host AS (
  -- Where the CPU is the device: the calls counted to one that begins in a window.
  SELECT
    head.rank, any_value(CASE WHEN head.start_ns < w.end_ns THEN w.step END) AS step, head.operator,
    []::VARCHAR[] AS kernel_names, any_value(head.phase) AS phase, any_value(head.module) AS module,
    any_value(names.category) AS category, 0::BIGINT AS kernels, sum(o.device_ns)::BIGINT AS dur_ns,
    bool_or(names.category != 'communication') AS computes,
    NULL::DOUBLE AS stated_flops, NULL::DOUBLE AS stated_bytes
  FROM operators AS o
  JOIN rank_devices AS r ON r.rank = o.rank AND works_on = 'host'
  JOIN operator_owners AS owners ON owners.rank = o.rank AND owners.operator = o.operator
  JOIN operators AS head ON head.rank = o.rank AND head.operator = owners.owner
  JOIN operator_names AS names ON names.name = head.name
  ASOF JOIN step_windows AS w ON w.rank = head.rank AND head.start_ns >= w.start_ns
  WHERE o.device_ns > 0 AND contains(o.name, ':') AND NOT regexp_matches(o.name, '^(torch::)?autograd::')
    AND head.start_ns < w.end_ns
  GROUP BY head.rank, head.operator
),
forwards AS (
  -- Functions of autograd's, whose gradients a call of the same number computes, by that call's name.
  SELECT
    rank, sequence, name || 'Backward' AS backward, any_value([name, shapes, dtypes, strides, "values"]) AS forward
  FROM operators
  WHERE sequence IS NOT NULL AND name || 'Backward' IN (SELECT name FROM operator_names)
  GROUP BY rank, sequence, name HAVING count(*) = 1
),
inner_calls AS (
  -- Calls that a cost model reads, by the call that makes them.
  SELECT
    o.rank, o.parent AS operator,
    list(
      [o.name, o.shapes, o.dtypes, o.strides, o."values"] ORDER BY o.track, o.start_ns, o.end_ns DESC, o.operator
    ) AS makes
  FROM operators AS o
  JOIN operators AS maker ON maker.rank = o.rank AND maker.operator = o.parent
  JOIN operator_names AS names ON names.name = maker.name
  WHERE names.reads_inner
  GROUP BY o.rank, o.parent
),
called AS MATERIALIZED (
  SELECT
    found.*, forwards.forward, inner_calls.makes, o.name, o.shapes, o.dtypes, o.strides, o."values", o.recomputed, owners.holds_product,
    CASE WHEN names.family = 'attention' THEN o.annotation END AS annotation
  FROM (SELECT * FROM launched UNION ALL SELECT * FROM on_host) AS found
  JOIN operators AS o ON o.rank = found.rank AND o.operator = found.operator
  JOIN operator_owners AS owners ON owners.rank = o.rank AND owners.operator = o.operator
  JOIN operator_names AS names ON names.name = o.name
  LEFT JOIN forwards ON forwards.rank = o.rank AND forwards.sequence = o.sequence AND forwards.backward = o.name
  LEFT JOIN inner_calls ON inner_calls.rank = o.rank AND inner_calls.operator = o.operator
),
costs AS MATERIALIZED (
  -- Calls alike cost alike: each is counted once.
  SELECT
    *, row_number() OVER () AS alike,
    operator_cost(name, shapes, dtypes, strides, "values", kernel_names, annotation, forward, makes) AS cost
  FROM (
    SELECT DISTINCT name, shapes, dtypes, strides, "values", kernel_names, annotation, forward, makes
    FROM called WHERE NOT holds_product
  )
),
kernel_names AS MATERIALIZED (
  SELECT name, kernel_base_name(name) AS base_name FROM (SELECT DISTINCT name FROM device WHERE owner IS NULL)
),
works AS (
  SELECT
    c.rank, c.step, c.operator, c.name, c.shapes, c.phase, c.module, c.category, c.kernels, c.dur_ns, c.computes,
    c.recomputed, c.stated_flops IS NOT NULL AS stated,
    CASE WHEN c.stated_flops IS NULL THEN costs.cost.flops ELSE c.stated_flops END AS flops,
    CASE WHEN c.stated_flops IS NULL THEN costs.cost.bytes ELSE c.stated_bytes END AS bytes,
    CASE WHEN c.stated_flops IS NULL THEN costs.cost.written_bytes END AS written_bytes,
    costs.alike::VARCHAR AS alike,
    costs.cost.precision AS precision,
    CASE WHEN c.stated_flops IS NULL THEN costs.cost.assumes END AS assumes, costs.cost.sizes AS sizes,
    CASE WHEN c.holds_product THEN 'what it calls is counted by itself' ELSE costs.cost.why_not END AS why_not
  FROM called AS c LEFT JOIN costs
    ON c.name IS NOT DISTINCT FROM costs.name AND c.shapes IS NOT DISTINCT FROM costs.shapes
    AND c.dtypes IS NOT DISTINCT FROM costs.dtypes AND c.strides IS NOT DISTINCT FROM costs.strides
    AND c."values" IS NOT DISTINCT FROM costs."values" AND c.kernel_names = costs.kernel_names
    AND c.annotation IS NOT DISTINCT FROM costs.annotation AND c.forward IS NOT DISTINCT FROM costs.forward
    AND c.makes IS NOT DISTINCT FROM costs.makes
    AND NOT c.holds_product
  UNION ALL
  SELECT
    rank, step, NULL, base_name, NULL, phase, module, category, 1, dur_ns, computes, false,
    flops IS NOT NULL, flops, CASE WHEN flops IS NOT NULL THEN hbm_bytes::DOUBLE END, NULL, name, NULL, NULL, NULL,
    CASE
      WHEN EXISTS (FROM operators AS o WHERE o.rank = device.rank) THEN 'no operator''s call is seen to launch it'
      ELSE 'the trace records no operators'' calls'
    END
  FROM device JOIN kernel_names USING (name) WHERE owner IS NULL
),
timed AS (
  SELECT
    works.*, device_peaks.flops_per_s AS peak_flops_per_s, attainable_flops_per_s,
    CASE
      WHEN works.flops = 0 THEN 0.0
      WHEN stated THEN works.flops / rank_devices.flops_per_s * 1e9
      ELSE works.flops / device_peaks.flops_per_s * 1e9
    END AS compute_ns,
    works.bytes / rank_devices.hbm_bytes_per_s * 1e9 AS memory_ns,
    (
      least(works.bytes - coalesce(written_bytes, 0), cache_bytes) + least(coalesce(written_bytes, 0), cache_bytes)
    ) / rank_devices.hbm_bytes_per_s * 1e9 AS cached_ns,
    accelerator IS NOT NULL AND computes AS has_roofline
  FROM works JOIN rank_devices USING (rank) LEFT JOIN device_peaks USING (precision)
),
bounded AS (
  SELECT
    *,
    CASE WHEN has_roofline AND memory_ns IS NOT NULL THEN greatest(compute_ns, memory_ns) END AS least_ns,
    CASE
      WHEN has_roofline AND memory_ns IS NOT NULL THEN greatest(compute_ns, memory_ns - coalesce(cached_ns, 0))
    END AS uncached_ns
  FROM timed
),
totals AS (
  -- Of all calls alike: their time, their roofline's, and the roofline's where the cache holds what it can.
  SELECT
    rank, alike, sum(dur_ns) * (1 + 1e-9) AS took_ns, sum(least_ns) AS least_ns, sum(uncached_ns) AS uncached_ns
  FROM bounded WHERE least_ns IS NOT NULL GROUP BY rank, alike
),
marked AS (
  SELECT
    bounded.*,
    CASE
      WHEN bounded.least_ns IS NULL OR totals.least_ns <= took_ns THEN NULL
      WHEN totals.uncached_ns <= took_ns THEN 'cache'
      ELSE 'above'
    END AS mark
  FROM bounded LEFT JOIN totals USING (rank, alike)
)
SELECT
  rank, step, operator, name, shapes, phase, module, category, kernels, dur_ns, computes, recomputed,
  flops, bytes, precision, compute_ns,
  CASE WHEN mark IS NULL THEN least_ns END AS roofline_ns,
  CASE WHEN least_ns IS NOT NULL THEN CASE WHEN compute_ns >= memory_ns THEN 'compute' ELSE 'memory' END END AS bound,
  mark,
  CASE WHEN mark IS NOT NULL THEN least_ns END AS marked_roofline_ns,
  CASE WHEN flops IS NULL OR bytes IS NULL THEN why_not END AS why_not,
  peak_flops_per_s, attainable_flops_per_s,
  sizes.batch AS batch, sizes.m AS m, sizes.n AS n, sizes.k AS k, sizes.layout AS layout, assumes
FROM marked
