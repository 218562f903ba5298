-- What `catalog import` added, and when: `detail` names the destinations of other catalogs.
SELECT a.at, a.subject, a.detail
FROM audit AS a
WHERE a.action = 'catalog import'
ORDER BY a.at, a.subject
