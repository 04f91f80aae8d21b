-- SPDX-License-Identifier: Apache-2.0
-- The call that counts the work of each operator call: the innermost around it with a cost model, else itself.
--
-- Columns:
--   rank INTEGER: rank that called it
--   operator BIGINT: id of the call, as in the table operators
--   owner BIGINT: id of the call that its work is counted to
--   holds_product BOOLEAN: whether a matrix product, convolution, attention or factorisation that is counted itself is inside
--
-- Example:
--   SELECT o.name, count(*) AS calls FROM operator_owners AS w JOIN operators AS o USING (rank, operator)
--   WHERE w.owner != w.operator GROUP BY o.name ORDER BY calls DESC, o.name LIMIT 20
WITH RECURSIVE families AS MATERIALIZED (
  SELECT name, operator_family(name) AS family FROM (SELECT DISTINCT name FROM operators)
),
calls AS MATERIALIZED (
  SELECT rank, operator, parent, family FROM operators JOIN families USING (name)
),
-- UNION, not UNION ALL: calls that hold one another in a damaged run end the recursion, too.
holders AS (
  SELECT rank, parent AS operator FROM calls
  WHERE family IN ('matrix product', 'convolution', 'attention', 'linear algebra') AND parent IS NOT NULL
  UNION
  SELECT rank, parent FROM holders JOIN calls USING (rank, operator) WHERE parent IS NOT NULL
),
flagged AS MATERIALIZED (
  SELECT
    rank, c.operator, parent, h.operator IS NOT NULL AS holds_product,
    family IS NOT NULL AND h.operator IS NULL AS owns
  FROM calls AS c LEFT JOIN holders AS h USING (rank, operator)
),
climb AS (
  SELECT rank, operator, operator AS holder, parent, owns FROM flagged
  UNION
  SELECT c.rank, c.operator, f.operator, f.parent, f.owns
  FROM climb AS c JOIN flagged AS f ON f.rank = c.rank AND f.operator = c.parent
  WHERE NOT c.owns
)
SELECT
  f.rank, f.operator, coalesce(any_value(c.holder), f.operator) AS owner,
  any_value(f.holds_product) AS holds_product
FROM flagged AS f LEFT JOIN (SELECT * FROM climb WHERE owns) AS c ON c.rank = f.rank AND c.operator = f.operator
GROUP BY f.rank, f.operator
